# Everything that CI checks can be run from here: .ci/run calls these targets.

IMAGE     ?= snowgate:local
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT    ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
FUZZTIME  ?= 30s
BENCH     ?= .
BENCHTIME ?= 1s

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary, as bin/snowgate.
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)" -o bin/snowgate .

.PHONY: test
test: ## Run the tests; those that miss Redis or Docker are skipped and say so.
	go test ./...

.PHONY: race
race: ## Run the tests with the race detector, in random order, one package at a time: some measure times.
	go test -race -shuffle=on -count=1 -p 1 -timeout 5m ./...

.PHONY: integration
integration: ## Run the tests; those that miss Redis or Docker fail.
	SNOWGATE_TEST_REQUIRE=1 go test -count=1 ./...

INTEROP := integration/testdata/interop/node

.PHONY: interop-modules
interop-modules: $(INTEROP)/node_modules/.package-lock.json ## Install the client libraries for Node.js that the tests use.

$(INTEROP)/node_modules/.package-lock.json: $(INTEROP)/package.json $(INTEROP)/package-lock.json
	npm ci --prefix $(INTEROP) --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: bench
bench: ## Run the benchmarks: make bench BENCH=Issue BENCHTIME=3s
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME.
	.ci/fuzz $(FUZZTIME)

.PHONY: model
model: ## Check the model of worker leases exhaustively.
	docs/model/check

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
	shellcheck $$(grep -rlE '^#!.*\bsh$$|^#!.*bash$$' .ci deploy docs)

.PHONY: lint
lint: ## Run the linters of .golangci.yml.
	"$$(.ci/tool lint)" run ./...

.PHONY: image
image: ## Build the image and check it.
	docker build -t $(IMAGE) --build-arg GOPROXY --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) .
	.ci/image-check $(IMAGE)

.PHONY: compose-smoke
compose-smoke: ## Try the compose file: start, use, restart, stop.
	.ci/compose-smoke

.PHONY: ci
ci: ## Everything, as CI does it.
	.ci/run
