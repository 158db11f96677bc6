// Completes items until there are none for a while: worker.cjs PORT PREFIX. Prints `worked ID` for each completed item, and
// survives restarts of the server.
const Redis = require('ioredis');
const { WorkQueue } = require('@mevitae/redis-work-queue/dist/WorkQueue');
const { KeyPrefix } = require('@mevitae/redis-work-queue/dist/KeyPrefix');

async function main() {
  const db = new Redis(Number(process.argv[2]), '127.0.0.1', { retryStrategy: () => 50, maxRetriesPerRequest: null });
  db.on('error', () => {});
  const queue = new WorkQueue(new KeyPrefix(process.argv[3]));
  let quiet = 0;
  while (quiet < 4) {
    try {
      const item = await queue.lease(db, 2, true, 1);
      if (item === null) {
        quiet += (await queue.processing(db)) === 0 && (await queue.queueLen(db)) === 0 ? 1 : 0;
        continue;
      }
      quiet = 0;
      const completed = await queue.complete(db, item);
      if (completed && item.data.length > 0) console.log('worked', item.id);
    } catch (error) {
      await new Promise((done) => setTimeout(done, 50));
    }
  }
  await db.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
