# Ends a private tor network when the owner process has ended in any way.
#
# $1: the network's folder, $2: `keep` to leave the folder in place.
# Standard input is a pipe that only the owner holds open. After a line `release` the network continues to run.
dir=$1
keep=$2

# A terminal's Ctrl-C or hang-up may end the owner, but must not end this process.
trap '' HUP INT QUIT TERM PIPE

# Tor processes are found by an argument that no other program has: stored process identifiers could
# be missing or reused. If the owner is killed between fork and exec of a tor, the child holds the pipe
# open until its exec.
tors() {
    printf '%s\n' "$dir/defaults-torrc" | grep -lzFx -f - /proc/[0-9]*/cmdline 2>/dev/null |
        cut -d/ -f3
}

while IFS= read -r line; do
    if [ "$line" = release ]; then
        exit 0
    fi
done

# About ten seconds at most. A killed process disappears at once, unless the kernel is busy freeing its
# memory. Key generation programs that still run end on their own.
tries=100
while [ "$tries" -gt 0 ]; do
    pids=$(tors)
    if [ -n "$pids" ]; then
        kill -KILL $pids 2>/dev/null
    elif [ "$keep" = keep ]; then
        exit 0
    elif rm -rf -- "$dir" 2>/dev/null && [ ! -e "$dir" ]; then
        exit 0
    fi
    sleep 0.1
    tries=$((tries - 1))
done
exit 1
