#!/bin/sh
# A child as the pool sees one: answers each line, and does what the tasks in it say.
#
# poison: dies; hang: says nothing more; gate: waits until somebody writes into the fifo $GATE; curable, incurable: fails
# so; anything else: one row. What it was asked goes into $LOG.

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
