# Every target sets up what it needs; `make` alone prints them.
.DEFAULT_GOAL := help
.PHONY: help demo run test check bench fuzz package deploy terraform-check terraform-emulator

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
LOCAL := go run ./scripts/local
FUZZTIME ?= 30s

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: go ## watch a mailbox's story on this machine, from link to redrive (under a minute)
	@$(LOCAL) demo

run: go ## run everything on this machine until Ctrl-C, and say where it listens
	@$(LOCAL) run

test: go ## start the emulators, run every test with the race detector, stop them
	$(LOCAL) emulators -- go test -race -timeout 14m ./...

check: go ## what CI runs: gofmt, vet, staticcheck, module files, and make test
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "run gofmt -w on: $$unformatted"; exit 1; }
	go mod tidy -diff
	go vet ./...
	go run $(STATICCHECK) ./...
	$(MAKE) test

bench: go ## measure against the barest program that does the same, as ratios, and hold the bounds
	$(LOCAL) emulators -- go run ./scripts/bench

fuzz: go ## run each fuzz target for FUZZTIME (30s)
	go test -fuzz FuzzClassify -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./shared/lane
	go test -fuzz FuzzDecodePush -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./shared/delivery
	go test -fuzz FuzzDecodeNotification -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./shared/delivery
	go test -fuzz FuzzOf -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./shared/gmailapi/content

package: go ## build the archive of the functions' source, the same to the byte each time
	@go run ./scripts/package

deploy: package ## put all of it on Google Cloud, or bring it up to date: PROJECT=… and, if it is another than us-central1, REGION=…
	@scripts/terraform/deploy "$(PROJECT)" "$(REGION)"

terraform-check: ## hold Terraform to its format, the real provider's schema, and its tests
	@scripts/terraform/check

terraform-emulator: go ## really apply the Pub/Sub part, to the Pub/Sub emulator: create, plan clean, destroy
	@$(LOCAL) emulators -- scripts/terraform/emulator

.PHONY: go
go:
	@command -v go >/dev/null || { echo "Go is not installed: get 1.26 or newer from https://go.dev/dl/"; exit 1; }
