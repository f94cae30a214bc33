# Everything that CI checks can be run from here: .ci/run calls these targets.

IMAGE     ?= snowgate:local
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT    ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
FUZZTIME  ?= 30s
BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 10

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary, as bin/snowgate.
	CGO_ENABLED=0 go build -trimpath -pgo=deploy/default.pgo -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)" -o bin/snowgate .

.PHONY: test
test: ## Run the tests; the last line says what was skipped for want of Redis, Docker and others, and what to install.
	@go test -json ./... | go run ./integration/skipped

RACE := go test -race -shuffle=on -count=1 -timeout 10m

.PHONY: race
race: race-build ## Run the tests with the race detector, in random order.
	@# Most packages wait more than they compute. Those of the second command start many servers, and some measure times.
	@code=0; set -x; $(RACE) $$(go list ./... | grep -v '^snowgate/integration') || code=1; $(RACE) -p 1 ./integration/... || code=1; exit $$code

.PHONY: race-build
race-build: ## Compile the tests with the race detector, on all processors.
	go list -race -test -deps -export ./... >/dev/null

.PHONY: cuts
cuts: ## Run the tests of connections with everything cut that clients and services send.
	.ci/cuts

.PHONY: cuts-full
cuts-full: ## The same with all tests of integration, in every mode, as bench/results/cuts.md; takes half an hour or more.
	.ci/cuts-full

.PHONY: integration
integration: ## Run the tests; those that miss Redis or Docker fail.
	SNOWGATE_TEST_REQUIRE=1 go test -count=1 ./...

.PHONY: plain-conn
plain-conn: ## Test the build that does not rely on how net/http reads (-tags snowgate_plainconn).
	GOFLAGS=-tags=snowgate_plainconn go vet ./internal/clientconn ./gateway
	GOFLAGS=-tags=snowgate_plainconn go test -count=1 ./internal/clientconn
	GOFLAGS=-tags=snowgate_plainconn go test -count=1 ./integration -run '^TestSecurity(Lengths|UnreadBodies|Forms)|^TestShutdown'

.PHONY: standard
standard: ## Run the integration tests with net/http's transport instead of ours (SNOWGATE_TRANSPORT=standard).
	SNOWGATE_TEST_TRANSPORT=standard go test -count=1 ./integration ./integration/conformance

TORTURE_FOR  ?= 1h
TORTURE_SEED ?= 0
TORTURE := ./integration/torture -run TestTorture -count=1 -torture.seed=$(TORTURE_SEED)

.PHONY: torture
torture: ## Hold the same conversations through the gateway and net/http's proxy for TORTURE_FOR, and compare.
	TORTURE_REPORT=$(CURDIR)/bench/results/torture.md go test $(TORTURE) -timeout 0 -torture.for=$(TORTURE_FOR)

.PHONY: torture-short
torture-short: ## The same for a minute, with the race detector; a difference that never comes again may be left out, twice at most.
	go test -race $(TORTURE) -timeout 5m -torture.for=60s -torture.again=10

.PHONY: foreign
foreign: ## Run clients, services and scripts of others against the gateway: varnishtest, curl, nghttp, h2load, nginx, Node.js, gunicorn.
	SNOWGATE_TEST_REQUIRE=1 go test -count=1 ./integration/foreign

.PHONY: traefik
traefik: ## Run the example of deploy/forward-auth for Traefik with Traefik; the first time it is built, which takes many minutes.
	SNOWGATE_TEST_TRAEFIK=$$(.ci/tool traefik) go test -v -count=1 -run TestForwardAuthBehindProxies/traefik.yaml ./integration

.PHONY: foreign-full
foreign-full: REPORT ?= $(CURDIR)/bench/results/foreign.md
foreign-full: RUN ?= .
foreign-full: ## The same with 1 GiB each way and 10 000 chunked responses of each service, as bench/results/foreign.md.
	SNOWGATE_TEST_REQUIRE=1 SNOWGATE_TEST_LONG=1 SNOWGATE_FOREIGN_REPORT=$(REPORT) go test -v -count=1 -timeout 60m -run "$(RUN)" ./integration/foreign

INTEROP := integration/testdata/interop/node

.PHONY: interop-modules
interop-modules: $(INTEROP)/node_modules/.package-lock.json ## Install the client libraries for Node.js that the tests use.

$(INTEROP)/node_modules/.package-lock.json: $(INTEROP)/package.json $(INTEROP)/package-lock.json
	npm ci --prefix $(INTEROP) --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: bench
bench: ## Measure the gateway beside others, in about twenty minutes; the tables go to bench/results.
	cd bench && go run .

.PHONY: bench-quick
bench-quick: ## The main figures, in less than a minute.
	cd bench && go run . -quick

.PHONY: bench-smoke
bench-smoke: ## See in ten seconds whether make bench still runs: one round of two contestants.
	go build -o bin/snowgate-smoke . # as tests are, so that nothing is compiled twice
	cd bench && go run . -quick -rounds 1 -only 'access log off,bare' -gateway ../bin/snowgate-smoke

.PHONY: microbench
microbench: ## Run the benchmarks of functions, for benchstat: make microbench BENCH=Issue BENCHTIME=1s COUNT=10
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) -benchmem ./...

.PHONY: bench-check
bench-check: ## Vet and test the programs of make bench and make bench-ids.
	cd bench/idgen && go vet ./...
	cd bench && go vet ./... && go test ./...

.PHONY: pgo
pgo: ## Profile the gateway and write deploy/default.pgo, by which releases are optimised.
	cd bench && go run . -run pgo -for 10s

.PHONY: flame
flame: ## Draw where the time of a request goes, as bench/results/flame.svg.
	cd bench && go run . -run profile -for 10s
	cd bench && go run ./flame -title "A validated, cached, proxied request" results/cpu.pprof >results/flame.svg
	rm bench/results/cpu.pprof

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME.
	.ci/fuzz $(FUZZTIME)

.PHONY: model
model: ## Check the model of worker leases exhaustively.
	docs/model/check

.PHONY: uniqueness
uniqueness: ## Kill, stop and wipe for minutes while ids are issued, and count duplicates: bench/results/uniqueness.md.
	bench/uniqueness

.PHONY: promises
promises: ## Run at full size the tests that CI runs with smaller numbers: bench/results/promises.md. Takes half an hour, on a quiet machine.
	bench/promises

.PHONY: scale
scale: ## A thousand gateways, ten million tokens, three shards: bench/results/scaling.md. Takes two minutes and 4 GB of memory.
	bench/scale

.PHONY: kubernetes
kubernetes: ## Decode the manifests of deploy/kubernetes with the types of Kubernetes, which takes a while to build.
	SNOWGATE_TEST_REQUIRE=1 SNOWGATE_TEST_KUBERNETES=1 go test -count=1 -run TestKubernetesDecodes ./integration

.PHONY: alerts
alerts: ## Test the Prometheus rules.
	cd deploy/prometheus && promtool test rules *.test.yml

.PHONY: bench-ids
bench-ids: ## Compare idgen with public generators, in one run.
	cd bench/idgen && go run .

.PHONY: demo
demo: ## Run the demonstration: everything in one process.
	go run . demo

.PHONY: check
check: format-check vet tidy-check shellcheck lint test ## All that needs no Docker.

.PHONY: format
format: ## Format the Go sources.
	"$$(.ci/tool lint)" fmt ./...

.PHONY: format-check
format-check: ## Name the Go files that gofmt would change.
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted:" $$files; exit 1; fi

.PHONY: vet
vet: ## Run go vet.
	go vet ./...

.PHONY: tidy-check
tidy-check: ## Check that go.mod and go.sum are tidy.
	go mod tidy -diff

.PHONY: shellcheck
shellcheck: ## Check the shell scripts.
	shellcheck $$(grep -rlE '^#!.*\bsh$$|^#!.*bash$$' .ci bench deploy docs)

.PHONY: lint
lint: ## Run the linters of .golangci.yml.
	"$$(.ci/tool lint)" run ./...
	tool=$$(.ci/tool lint) && cd bench && "$$tool" run ./...

.PHONY: image
image: ## Build the image and check it.
	docker build -t $(IMAGE) --build-arg GOPROXY --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) .
	.ci/image-check $(IMAGE)

.PHONY: compose-smoke
compose-smoke: ## Try the compose file: start, use, restart, stop.
	.ci/compose-smoke

UPS ?= 0

.PHONY: compose-again
compose-again: ## Start and stop the example again and again, UPS (0) times with a token; needs the images that compose-smoke builds.
	.ci/compose-again $(UPS)

.PHONY: compose-again-full
compose-again-full: ## The same with ten starts, as bench/results/compose.md; takes three minutes.
	REPORT=bench/results/compose.md .ci/compose-again 10

.PHONY: first-service
first-service: ## Do what docs/get-started/first-service.md says, block by block; needs the images that compose-smoke builds.
	.ci/first-service

.PHONY: engine-test
engine-test: ## Try discovery and scaling with the Docker engine; needs the images that compose-smoke builds.
	SNOWGATE_TEST_ENGINE=1 go test -count=1 -v -timeout 5m ./integration/engine

.PHONY: ci
ci: ## Everything, as CI does it.
	.ci/run
