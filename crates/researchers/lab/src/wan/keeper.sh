# Kills all processes in a host's network namespace when the owner process has ended in any way.
#
# $1: a path of the namespace, $2: the owner's process identifier.
# Standard input is a pipe that only the owner holds open.

# A terminal's Ctrl-C or hang-up may end the owner, but must not end this process.
trap '' HUP INT QUIT TERM PIPE

# The kernel does not reuse the namespace's number while a file descriptor refers to it.
exec 3<"$1" || exit 1
number=$(readlink /proc/self/fd/3 | tr -dc 0-9)
[ -n "$number" ] || exit 1
echo ready
exec >/dev/null

while IFS= read -r line; do :; done

inside() {
    find /proc/[0-9]*/ns/net -maxdepth 0 -lname "net:?$number?" 2>/dev/null |
        cut -d/ -f3 | grep -vxF -e "$2"
}

# The keeper of a private tor network on this host, which still has to remove that network's folder; its
# children are spared as well.
is_keeper() {
    grep -qzxF flashflow-lab-keeper "/proc/$1/cmdline" 2>/dev/null
}

is_spared() {
    is_keeper "$1" || is_keeper "$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)"
}

# About ten seconds at most. Keepers are spared for the first half. A killed process disappears at once, unless
# the kernel is busy.
tries=100
while [ "$tries" -gt 0 ]; do
    pids=$(inside "$@")
    [ -n "$pids" ] || exit 0
    for pid in $pids; do
        [ "$tries" -gt 50 ] && is_spared "$pid" || kill -KILL "$pid" 2>/dev/null
    done
    sleep 0.1
    tries=$((tries - 1))
done
exit 1
