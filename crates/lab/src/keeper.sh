# Ends a private tor network when its owner is gone, however the owner ended.
#
# $1: the network's folder, $2: `keep` to leave the folder in place.
# Standard input is a pipe that only the owner holds open. A line `release` lets the network live.
dir=$1
keep=$2

# A terminal's Ctrl-C or hang-up may end the owner, but must not end us before our work is done.
trap '' HUP INT QUIT TERM PIPE

# Tors are found by an argument that no other program has, so that neither a process identifier
# that went astray nor one that was used again can mislead us. An owner killed between fork and
# exec of a tor is no gap: until that exec, the child holds the pipe open.
tors() {
    printf '%s\n' "$dir/defaults-torrc" | grep -lzFx -f - /proc/[0-9]*/cmdline 2>/dev/null |
        cut -d/ -f3
}

while IFS= read -r line; do
    if [ "$line" = release ]; then
        exit 0
    fi
done

# About ten seconds at most. Processes that have been killed vanish at once, unless the kernel
# is busy freeing their memory. Key-making programs that still run end by themselves.
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
