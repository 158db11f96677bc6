#!/bin/sh
# A child process of the pool: replies to each line, and acts as the names of its tasks say.
#
# poison: dies; hang: never replies; gate: waits until a test writes into the fifo $GATE; curable, incurable: fails with a
# retryable or a permanent error; anything else: inserts one row. Requests are logged in $LOG.

echo $$ >>"$PIDS"
while read -r line; do
    printf '%s\n' "$line" >>"$LOG"
    case $line in
    *poison*) kill -9 $$ ;;
    *hang*) exec sleep 1000 ;;
    *gate*) read -r _ <"$GATE" ;;
    esac
    outcomes=
    case $line in
    *'"uuid"'*) rest=${line#*'"uuid"'} ;;
    *) rest= ;;
    esac
    while [ -n "$rest" ]; do
        one=${rest%%'"uuid"'*}
        case $one in
        *incurable*) outcomes="$outcomes,{\"error\":\"E(no)\",\"curable\":false}" ;;
        *curable*) outcomes="$outcomes,{\"error\":\"E(later)\",\"curable\":true}" ;;
        *) outcomes="$outcomes,{\"rows\":1}" ;;
        esac
        case $rest in
        *'"uuid"'*) rest=${rest#*'"uuid"'} ;;
        *) rest= ;;
        esac
    done
    printf '{"outcomes":[%s]}\n' "${outcomes#,}"
done
