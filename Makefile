# Targets print what they do; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
GOLANGCI := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: build
build: ## build bin/tutti
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X github.com/tutti-project/tutti/internal/app.Version=$(VERSION)" -o bin/tutti ./cmd/tutti

.PHONY: deb
deb: ## build the Debian package into bin/
	script/build-deb $(VERSION) bin

.PHONY: deps
deps: ## install the Debian packages that tests, lab and demo need (root)
	script/install-deps

.PHONY: demo
demo: deps build ## deploy OpenStack Swift on four lab hosts, without a plan; store and fetch an object (root)
	bin/tutti demo swift --converge $(DEMO)

.PHONY: test
test: deps ## every test that needs no lab hosts: Go with -race, testscript, kill -9 and loss of power at every point, the module's lint and specs
	$(GO) test -race -timeout 15m ./...
	$(GO) test -tags killpoints -timeout 15m ./cmd/tutti
	script/module-specs

.PHONY: fuzz
fuzz: ## fuzz every decoder, FUZZTIME=10m each, at the lowest priority
	FUZZTIME=$(or $(FUZZTIME),10m) script/fuzz $(FUZZ)

.PHONY: lint
lint: ## golangci-lint, go mod tidy, and that operators elsewhere can build it
	$(GOLANGCI) run --allow-parallel-runners ./...
	$(GOLANGCI) run --allow-parallel-runners --build-tags e2e,killpoints ./...
	$(GO) mod tidy -diff
	GOOS=darwin $(GO) vet ./cmd/tutti

.PHONY: vuln
vuln: ## known vulnerabilities that this code reaches (fails, and says so, where the database cannot be asked)
	@out=$$($(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./... 2>&1) && { echo "$$out"; exit 0; }; echo "$$out"; \
	case "$$out" in *"exit status 3"*) ;; *) echo "vuln: NOT CHECKED: govulncheck or its database cannot be reached from here" ;; esac; exit 1

# What the second round leaves out is about the server and the network, and never looks at Puppet; the example is deployed
# there once, by converging; `puppet agent` is left to the module's specs, which run on both; the web and the compute example
# are made for the modules that Debian 13 packages.
.PHONY: e2e
e2e: deps build ## tests on lab hosts: with Puppet 8 (Debian 13), then with Puppet 7 (Debian 12) (root)
	$(GO) test -tags e2e -count 1 -timeout 75m -p 1 ./internal/lab/... ./e2e/...
	E2E_RELEASE=bookworm $(GO) test -tags e2e -count 1 -timeout 60m -skip 'TestChaos|TestPausedServer|TestSwift|TestWeb|TestCompute|TestPuppetServer|TestPuppetDB|TestConverge(Faults|Failing|Scale|Small)' ./e2e/...

.PHONY: e2e-cold
e2e-cold: deps build ## Swift from nothing without a plan, COLD=1,2,…,20 are the seeds of delayed agents and slow links (root)
	E2E_COLD=$(or $(COLD),$(shell seq -s , 20)) $(GO) test -tags e2e -count 1 -timeout 4h -v -run '^TestConvergeSwift$$' ./e2e

.PHONY: bench
bench: deps build ## one line per figure: name value unit goal met|missed (root)
	$(GO) run ./internal/bench

.PHONY: defence
defence: ## take each defence out and show the test that fails without it
	$(GO) run ./internal/defence

.PHONY: check
check: lint test e2e ## what CI runs

.PHONY: fmt
fmt: ## format
	$(GOLANGCI) fmt ./...

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
