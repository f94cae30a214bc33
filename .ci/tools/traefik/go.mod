module traefik

go 1.26

require github.com/traefik/traefik/v3 v3.6.12
