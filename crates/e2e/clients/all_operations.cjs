// Runs every operation of redis-work-queue for Node: all_operations.cjs PORT. Exits with 0 if all results are right.
const assert = require('node:assert');
const Redis = require('ioredis');
const { WorkQueue } = require('@mevitae/redis-work-queue/dist/WorkQueue');
const { Item } = require('@mevitae/redis-work-queue/dist/Item');
const { KeyPrefix } = require('@mevitae/redis-work-queue/dist/KeyPrefix');

async function main() {
  const db = new Redis(Number(process.argv[2]), '127.0.0.1');
  const queue = new WorkQueue(new KeyPrefix('node'));
  for (const data of ['one', '', 'zwei\r\n\u0000']) await queue.addItem(db, new Item(data, `id ${data.length}`));
  assert.equal(await queue.queueLen(db), 3);
  for (const data of ['one', '', 'zwei\r\n\u0000']) {
    const item = await queue.lease(db, 30);
    assert.equal(item.data.toString(), data);
    assert.equal(await queue.complete(db, item), true);
    assert.equal(await queue.complete(db, item), false);
  }
  const begun = performance.now();
  assert.equal(await queue.lease(db, 30, true, 1), null);
  assert(performance.now() - begun >= 999);
  assert.equal(await queue.lease(db, 30, false), null);

  // An item goes back when its lease expires, without a cleaner; the cleaner of this version then has nothing to do.
  await queue.addItem(db, new Item('slow', 'x'));
  assert.equal((await queue.lease(db, 1)).id, 'x');
  while ((await queue.queueLen(db)) === 0) await new Promise((done) => setTimeout(done, 50));
  assert.equal(await queue.leaseExists(db, 'x'), false);
  await queue.lightClean(db);
  assert.equal(await queue.queueLen(db), 1);
  const item = await queue.lease(db, 30);
  assert.equal(item.data.toString(), 'slow');
  assert.equal(await queue.complete(db, item), true);

  assert.deepEqual(await db.multi().set('a', 1).incr('a').exec(), [[null, 'OK'], [null, 2]]);
  await db.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
