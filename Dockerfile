# The gateway image: one static binary and a CA bundle, nothing else.
#
#   docker build -t snowgate:local .
#
# Ordinary instructions only, so that both BuildKit and the classic builder can
# run this file. GOPROXY is for networks with a module proxy of their own.

FROM golang:1.26 AS build
WORKDIR /src
ARG GOPROXY
# The modules are a layer of their own: it lives until go.mod or go.sum change.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -pgo=deploy/default.pgo \
        -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" \
        -o /out/snowgate .

# What `docker compose up` runs once to make the example's secrets. It has the
# shell that the gateway's image deliberately lacks and is not part of it.
FROM debian:bookworm-slim AS setup
COPY --from=build /out/snowgate /usr/local/bin/snowgate
ENTRYPOINT ["/bin/sh"]

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/snowgate /snowgate
# A number, so that an orchestrator can see that it is not root.
USER 65532:65532
# 8080: tokens and routes. 9090: admin and metrics; on loopback unless
# SNOWGATE_ADMIN_LISTEN says otherwise, and never to be published.
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["/snowgate", "health"]
ENTRYPOINT ["/snowgate"]
