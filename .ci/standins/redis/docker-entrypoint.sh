#!/bin/sh
# See the Dockerfile beside this file for what it imitates.
set -eu

case "${1-}" in
-* | *.conf) set -- redis-server "$@" ;;
esac
[ "${1-}" = redis-server ] || exec "$@"

# The official image is compiled with protected mode off; Debian's is not.
case " $* " in
*protected-mode*) ;;
*) set -- "$@" --protected-mode no ;;
esac

if [ "$(id -u)" = 0 ]; then
    find . \! -user redis -exec chown redis '{}' +
    exec setpriv --reuid=redis --regid=redis --clear-groups "$@"
fi
exec "$@"
