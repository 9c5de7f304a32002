# Targets print what they do; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
GOLANGCI := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: ## build bin/tutti
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X github.com/tutti-project/tutti/internal/app.Version=$(VERSION)" -o bin/tutti ./cmd/tutti

.PHONY: ui
ui: ## build the page in the browser, ui/dist from ui/src; needs only Go. A test fails if ui/dist is not what ui/src gives
	$(GO) run ./internal/uibuild

.PHONY: test-ui
test-ui: ## drive the page with a real browser (Debian's chromium, as root installed); axe-core is fetched if npm is there; UI_SHOTS=DIR writes pictures
	script/install-deps chromium
	AXE=$$(script/axe) $(GO) test -tags ui -count 1 -timeout 20m ./internal/uitest

.PHONY: deb
deb: ## build the Debian package for this machine's architecture into bin/
	$(GO) run ./internal/packages -version '$(VERSION)' -out bin -only deb

.PHONY: packages
packages: ## build deb and rpm for amd64 and arm64, SBOMs and SHA256SUMS into bin/packages, VERSION=0.3.0; PACKAGE_KEY=FILE signs
	rm -rf bin/packages
	PACKAGE_KEY='$(PACKAGE_KEY)' $(GO) run ./internal/packages -version '$(VERSION)' -out bin/packages

.PHONY: packages-check
packages-check: deps ## build the packages twice and compare; install, upgrade and remove the rpm in a root with EL's paths (root)
	$(GO) test -tags packages -count 1 -timeout 50m -v ./internal/packages

.PHONY: deps
deps: ## install the Debian packages that tests, lab and demo need (root)
	script/install-deps

.PHONY: demo
demo: deps build ## deploy OpenStack Swift on four lab hosts, without a plan; store and fetch an object; DEMO=--ui shows it in a browser (root)
	bin/tutti demo swift --converge $(DEMO)

.PHONY: test
test: deps ## every test that needs no lab hosts: Go, testscript, kill -9 and loss of power at every point, the module's lint and specs
	$(GO) run ./internal/check -only go,specs8,specs7

.PHONY: fuzz
fuzz: ## fuzz every decoder, FUZZTIME=10m each, at the lowest priority
	FUZZTIME=$(or $(FUZZTIME),10m) script/fuzz $(FUZZ)

.PHONY: lint
lint: ## golangci-lint, go mod tidy, and that operators elsewhere can build it
	$(GO) run ./internal/check -only lint

.PHONY: vuln
vuln: ## known vulnerabilities that this code reaches (fails, and says so, where the database cannot be asked)
	@out=$$($(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./... 2>&1) && { echo "$$out"; exit 0; }; echo "$$out"; \
	case "$$out" in *"exit status 3"*) ;; *) echo "vuln: NOT CHECKED: govulncheck or its database cannot be reached from here" ;; esac; exit 1

.PHONY: e2e
e2e: deps ## the tests on lab hosts that check runs: with Puppet 8 (Debian 13), then with Puppet 7 (Debian 12) (root)
	$(GO) run ./internal/check -only build,e2e8,e2e7

.PHONY: e2e-cold
e2e-cold: deps build ## Swift from nothing without a plan, COLD=1,2,…,20 are the seeds of delayed agents and slow links (root)
	E2E_COLD=$(or $(COLD),$(shell seq -s , 20)) $(GO) test -tags e2e -count 1 -timeout 4h -v -run '^TestConvergeSwift$$' ./e2e

.PHONY: bench
bench: deps build ## one line per figure: name value unit goal met|missed (root)
	$(GO) run ./internal/bench

.PHONY: defence
defence: ## take each defence out and show the test that fails without it; CHANGED=REV, RUN=REGEXP, PART=1/3 for some
	$(GO) run ./internal/defence -changed '$(CHANGED)' -run '$(RUN)' -part '$(or $(PART),1/1)'

.PHONY: check
check: deps ## what CI runs: lint, test, e2e; with BASE=REV only what the changes since that commit touch
	$(GO) run ./internal/check $(if $(BASE),-base $(BASE))

.PHONY: deep
deep: deps ## one part of the tests that check leaves out, PART=NAME; without PART the list of parts
	$(GO) run ./internal/check -deep $(or $(PART),list)

.PHONY: openvox
openvox: build ## the module's specs and one test on a lab host with OpenVox 8, TREE=DIR is a checkout of its source (root)
	script/openvox '$(TREE)'

.PHONY: changelog
changelog: ## make the section of a release in CHANGELOG.md, VERSION=0.2.0, and remove the files it is made of
	$(GO) run ./internal/changelog -version '$(VERSION)'

.PHONY: fmt
fmt: ## format
	$(GOLANGCI) fmt ./...

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
