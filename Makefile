# Countersign. `make help` lists what there is to make.
SHELL := /bin/bash
export CGO_ENABLED := 0
# Everything is compiled the same way, so that what the programs need is compiled once, not again
# for the tests and the linters.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)

BIN      := bin
SERVICES := admitter correlator auditor gateway
CMDS     := countersign countersign-bench countersign-hook countersign-mcp $(SERVICES)
GOFILES  := $(shell git ls-files -co --exclude-standard '*.go' 2>/dev/null)
FUZZTIME ?= 20s
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -X github.com/countersign-dev/countersign/internal/buildinfo.version=$(VERSION)

.DEFAULT_GOAL := help
.PHONY: adapters agents alerts cluster soak redaction-oracle help docs build demo up test test-short check race cover vuln lint bench bench-audit fuzz chaos engine check-tools clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check-tools:
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer (https://go.dev/dl) and put it on PATH" >&2; exit 1; }
	@case "$$(python3 --version 2>/dev/null)" in \
	  "") echo "python3 is missing: install Python 3.10 or newer, or the second verifier and the Python SDK are not tested" >&2;; \
	  "Python 2."*|"Python 3."[0-9].*) echo "$$(python3 --version) is too old: install Python 3.10 or newer, or the tests of the second verifier and the Python SDK fail" >&2;; esac
	@case "$$(node --version 2>/dev/null)" in \
	  "") echo "node is missing: install Node.js 20.3 or newer, or the TypeScript SDK is not tested" >&2;; \
	  v[0-9].*|v1[0-9].*|v20.[0-2].*) echo "Node.js $$(node --version) is too old: install Node.js 20.3 or newer, or the tests of the TypeScript SDK fail" >&2;; esac
	@command -v npm >/dev/null || echo "npm is missing: install it with Node.js, or the package and the adapters of the TypeScript SDK are not tested" >&2
	@[ "$$(uname -s)/$$(uname -m)" = Linux/x86_64 ] || [ -n "$$COUNTERSIGN_CLICKHOUSE" ] || command -v clickhouse >/dev/null || \
	  { echo "the embedded ClickHouse engine runs on Linux x86-64 only: install clickhouse, or set COUNTERSIGN_CLICKHOUSE to the DSN of a server of yours" >&2; exit 1; }

build: check-tools ## bin/countersign, countersign-hook, countersign-mcp, the service binaries and countersign-bench (no C compiler needed)
	@[ -d "$$(go env GOMODCACHE)/cache/download" ] || echo "downloading Go modules (first build on this machine) ..."
	@mkdir -p $(BIN) && go build -ldflags "$(LDFLAGS)" -o $(BIN)/ $(addprefix ./cmd/,$(CMDS))

engine: build ## fetch and check the ClickHouse engine (178 MB, once; kept in the user's cache)
	@$(BIN)/countersign engine fetch

demo: engine ## the main job on sample input, start to finish
	@$(BIN)/countersign demo

up: engine ## start NATS, ClickHouse, the three services and the gateway on this machine
	@$(BIN)/countersign up

# Packages are tested in this order: the longest one begins first. Most tests wait for a disk or for another process
# most of the time, so more of them run than there are processors: six systems of ./test hold about 2 GB.
# The tests of ./test run the programs that were built. Without tables for debuggers a test binary links a quarter faster.
# `make lint` runs the analyses of go vet.
test: engine ## every test (unit, fuzz seeds, end to end against real NATS and ClickHouse)
	@COUNTERSIGN_TEST_BIN=$(CURDIR)/$(BIN) go test -vet=off -ldflags '-s -w' -p 4 -parallel 6 -timeout 40m ./test ./storage/... ./internal/service/... ./...

test-short: ## unit tests only: those that start no server
	@go test -short -vet=off -ldflags '-s -w' -timeout 5m ./...

docs: ## write docs/reference from the code
	@go run ./tools/docgen
# The race detector makes a test about ten times slower. RACE_CORES are the packages whose test binary links no
# server, and a few that start none: their short tests run. RACE_SERVICES start NATS and ClickHouse, which -short leaves
# out, so all their tests run. SKIP names tests to leave out: .ci/run leaves out TestChaos, which takes as long as the
# other tests of the correlator three times over, and tests that compute for long in one goroutine.
RACE_SERVICES := ./client ./streams/... ./internal/pipeline/... ./internal/recorded ./internal/service/...
RACE_CORES     = $(shell go list -test -f '{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}' ./... | \
  awk '$$1 ~ /\.test$$/ && $$1 !~ /\/(streams|internal\/(pipeline|service))/ && !/nats-server|countersign\/storage/ {sub(/\.test$$/, "", $$1); print $$1}') \
  ./admission ./internal/cli/admin ./internal/cli/export ./internal/cli/inspect ./internal/cli/proof ./internal/cli/verify
RACE_TEST     := CGO_ENABLED=1 go test -race -vet=off -ldflags '-s -w' -timeout 20m

race: engine ## cores, streams and services under the race detector (needs a C compiler; PKGS="./client ./gateway/..." for a few packages, SKIP=TestChaos without that test)
	@command -v cc >/dev/null || { echo "a C compiler is missing: the race detector needs one, install gcc or clang" >&2; exit 1; }
	$(if $(PKGS),,@$(RACE_TEST) -short $(if $(SKIP),-skip '$(SKIP)') $(RACE_CORES))
	@$(RACE_TEST) $(if $(SKIP),-skip '$(SKIP)') $(or $(PKGS),$(RACE_SERVICES))

# CORES are pure: functions of their inputs, to be covered by their own tests.
CORES := ./admission/... ./correlation/... ./evidence/... ./events/... ./compliance/...

# COVERED prints the coverage of each package that go test reports.
COVERED := awk '{where = ""} \
	  /coverage: [0-9.]+%/ && !/^FAIL/ {match($$0, /[0-9.]+%/); where = $$1 == "ok" ? $$2 : $$1; printf "%7s  %s\n", substr($$0, RSTART, RLENGTH), where; next} {print}'

cover: ## coverage of the pure cores by their own short tests, a line a package, then of the rest (PKGS=./events/... for a few)
	@set -o pipefail; go test -short -cover -timeout 20m $(or $(PKGS),$(CORES)) | $(COVERED)
	@[ -n "$(PKGS)" ] || { set -o pipefail; echo "the rest:"; go test -short -cover -timeout 20m $$(go list ./... | grep -vxF "$$(go list $(CORES))") | $(COVERED); }

check: build lint test-short ## what needs no server: build, lint, unit tests

vuln: ## known vulnerabilities in what the programs reach (needs the vulnerability database)
	@go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

lint: check-tools ## golangci-lint (.golangci.yml), layering, no conflict markers of git
	@! git grep -nE '^(<{7}|>{7})( |$$)' || { echo "git's conflict markers: finish the merge" >&2; exit 1; }
	@go tool -modfile=tools/golangci.mod golangci-lint run ./...
	@./tools/layering.sh

bench: engine ## what a call costs end to end, admission latency beside its floors, then the micro benchmarks
	@$(BIN)/countersign-bench calls
	@$(BIN)/countersign-bench admit
	@go test -run '^$$' -bench . -benchmem ./events/... ./schemas/... ./admission/... ./correlation/... ./evidence/... ./compliance/...

bench-audit: engine ## the auditor beside its floors, and auditors' questions among a million rows (ROWS=10000000 for ten, KEEP=dir to go on with them later)
	@$(BIN)/countersign-bench audit --rows $(or $(ROWS),1000000) $(if $(KEEP),--keep $(KEEP))

fuzz: ## every fuzz target for FUZZTIME each
	@for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz'); do \
	  echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

soak: engine ## ten minutes of steady load, and what it does to memory
	@$(BIN)/countersign-bench calls --rate 300 --seconds 540 --warm-up 1m --variant plain --no-floors

redaction-oracle: ## recall and precision of the redaction engine, beside gitleaks' (fetches gitleaks once)
	@f=$$(mktemp); trap 'rm -f $$f' EXIT; \
	go test -count=1 -v -run 'TestCorpus$$' ./evidence/internal/redact -args -corpus $$f | grep recall && \
	echo "gitleaks on the same texts:" && (cd tools/gitleaks && go run . $$f) && \
	(cd tools/gitleaks && go run . -generate 20) > $$f && \
	go test -count=1 -v -run TestForeignCorpus ./evidence/internal/redact -args -foreign $$f | grep -o 'found [0-9]* of [0-9]* ([0-9.]*)'

alerts: ## when the alerts of deploy/prometheus fire, by Prometheus' own engine (fetches it)
	@cd tools/alerts && go test -vet=off ./...

cluster: ## three servers of a cluster on loopback: stop them and fill a disk, for longer than CI does
	@COUNTERSIGN_CLUSTER=long go test -count=1 -timeout 30m -run Cluster -v ./internal/service/admitter ./test/deploy

# AGENTS is where the agents are installed; each is a package of npm with its version, or with NEWEST=1 its newest one.
# LOOPBACK runs a command in a network of loopback alone; LOOPBACK= leaves it out where user namespaces are not permitted.
AGENTS   := $(or $(COUNTERSIGN_AGENTS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/countersign-agents)$(if $(NEWEST),-newest)
LOOPBACK ?= COUNTERSIGN_LOOPBACK=1 unshare --map-root-user --net sh -c 'ip link set lo up && exec "$$@"' --

agents: engine ## real coding agents behind the gate, headless, with a scripted model and without a network (installs them from npm into the cache, and builds ToolHive; NEWEST=1 for the newest)
	@for a in claude-code=@anthropic-ai/claude-code@2.1.330 codex=@openai/codex@0.169.0 gemini=@google/gemini-cli@0.61.0 opencode=opencode-ai@1.18.33 copilot=@github/copilot@1.0.102 cline=@cline/cli-linux-x64@3.0.65 mcp-typescript=@modelcontextprotocol/sdk@1.32.2; do \
	  p="$${a#*=}"; npm install --prefix "$(AGENTS)/$${a%%=*}" --ignore-scripts --no-audit --no-fund --loglevel=error "$(if $(NEWEST),$${p%@*}@latest,$$p)" || exit 1; done
	@test -x "$(AGENTS)/toolhive/thv" || (cd / && GOFLAGS=-trimpath GOBIN="$(AGENTS)/toolhive" CGO_ENABLED=0 GOTOOLCHAIN=local go install -ldflags '-s -w' github.com/stacklok/toolhive/cmd/thv@v0.47.0) || echo "ToolHive cannot be built here: its test is skipped"
	@cd test && go test -vet=off -c -o "$(CURDIR)/$(BIN)/agents.test" .
	@cd test && COUNTERSIGN_AGENTS=$(AGENTS) COUNTERSIGN_TEST_BIN=$(CURDIR)/$(BIN) $(LOOPBACK) "$(CURDIR)/$(BIN)/agents.test" -test.timeout 20m -test.v -test.run 'TestAgents|TestClaudeCode|TestMCP'

# ADAPTERS is where the frameworks of the TypeScript SDK's adapters are installed. AIOC is the source of
# aioc's runtime, which npm does not have. MCP's conformance suite needs a newer Node.js than the others.
ADAPTERS := $(or $(COUNTERSIGN_ADAPTERS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/countersign-adapters)
AIOC     ?= ../shared/upstream/aioc/runtime
INSTALL  := npm install --ignore-scripts --no-audit --no-fund --loglevel=error

adapters: engine ## the TypeScript SDK's adapters in the real frameworks, with scripted models, and MCP's conformance suite (installs them from npm into the cache)
	@$(INSTALL) --prefix "$(ADAPTERS)/openai" @openai/agents-core@0.20.0 zod@4.1.12
	@$(INSTALL) --prefix "$(ADAPTERS)/langchain" langchain@1.5.14 @langchain/core@1.2.13 zod@4.1.12
	@$(INSTALL) --prefix "$(ADAPTERS)/vercel" ai@7.0.173 zod@4.1.12
	@$(INSTALL) --prefix "$(ADAPTERS)/adk" @google/adk@2.0.0
	@$(INSTALL) --prefix "$(ADAPTERS)/nats" @nats-io/transport-node@3.4.0
	@$(INSTALL) --prefix "$(ADAPTERS)/typescript" typescript@5.9.3
	@npm install --no-audit --no-fund --loglevel=error --prefix "$(ADAPTERS)/mcp-conformance" @modelcontextprotocol/conformance@0.1.16 node@22.23.3
	@if [ -d "$(AIOC)" ]; then mkdir -p "$(ADAPTERS)/aioc" && cp -r "$(AIOC)/." "$(ADAPTERS)/aioc" && cd "$(ADAPTERS)/aioc" && $(INSTALL) && npm run --silent build; \
	  else echo "aioc's adapter is not tested: AIOC=$(AIOC) is no folder with its runtime"; fi
	@COUNTERSIGN_ADAPTERS=$(ADAPTERS) COUNTERSIGN_TEST_BIN=$(CURDIR)/$(BIN) go test -vet=off -count=1 -timeout 20m -v -run 'TestAdapters|TestMCPConformance' ./test

# SWEEPS are tests of ./test that try each kind of fault in `make test`, and each with every command here.
SWEEPS := Killed|IndexesAreNotBelieved|Tampering|ProvedAnswersNeedNoServer|Formats|Replay$$|ServiceStandsStill

chaos: engine ## break everything at random moments and in every way, for longer than CI does (an hour or so)
	@COUNTERSIGN_CHAOS=long go test -count=1 -p 1 -timeout 180m -run 'Chaos|$(SWEEPS)' -v ./internal/service/correlator ./test

clean: ## remove what was built
	@rm -rf $(BIN)
