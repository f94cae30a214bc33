#!/bin/sh
# Makes the example's secrets and configuration, each only if it is missing.
# Runs as the service `setup` of docker-compose.yml; deploy/compose is /example.
#
# To start anew, with other secrets and an empty Redis: deploy/compose/reset.
set -eu
umask 077

cd /example
owner=$(stat -c %u .)
group=$(stat -c %g .)
redis_group=999       # of the image redis:7-bookworm
gateway_group=65532   # of this repository's Dockerfile

# keep FILE GROUP [MODE] takes standard input as FILE's content, in one step; you
# own it, GROUP may read it, and nobody else unless MODE says so.
keep() {
    cat >"$1.new"
    chown "$owner:$2" "$1.new"
    chmod "${3:-0640}" "$1.new"
    mv "$1.new" "$1"
    echo "made deploy/compose/$1"
}

# A directory that Git does not know is absent in an exported source tree;
# Docker makes it then, but as root's.
mkdir -p config secrets/redis secrets/gateway
chown "$owner" config secrets secrets/redis secrets/gateway
chmod 0755 config secrets secrets/redis secrets/gateway

if [ ! -s secrets/redis/auth.conf ] || [ ! -s secrets/gateway/redis-url ]; then
    password=$(od -An -vtx1 -N32 /dev/urandom | tr -d ' \n')
    echo "requirepass $password" | keep secrets/redis/auth.conf "$redis_group"
    echo "redis://:$password@redis:6379/0" | keep secrets/gateway/redis-url "$gateway_group"
fi

# client_secret prints a new client secret, and nothing of the rest: its digest is
# computed where it is needed.
client_secret() {
    made=$(snowgate client new -id example -scope "orders.read billing.read")
    secret=$(printf '%s\n' "$made" | grep -oE 'sgs_[0-9A-Za-z]{49}' | head -n 1)
    if [ -z "$secret" ]; then
        echo "setup: 'snowgate client new' printed no secret" >&2
        exit 1
    fi
    printf '%s\n' "$secret"
}

if [ ! -s secrets/example-client ]; then
    client_secret | keep secrets/example-client "$group"
fi

# The administrator, for the command line inside the gateway's container.
if [ ! -s secrets/gateway/admin-client ]; then
    client_secret | keep secrets/gateway/admin-client "$gateway_group"
fi

# No secret in it, and readable by all: an editor of yours that replaces the file
# could not give it to the gateway's group.
digest=$(tr -d '\n' <secrets/example-client | sha256sum | cut -d ' ' -f 1)
if [ ! -s config/snowgate.yaml ]; then
    sed "s/@EXAMPLE_SHA256@/$digest/" snowgate.example.yaml | keep config/snowgate.yaml "$group" 0644
elif ! grep -q "$digest" config/snowgate.yaml; then
    echo "setup: config/snowgate.yaml does not know the secret in secrets/example-client." >&2
    echo "setup: its SHA-256 is $digest" >&2
fi
