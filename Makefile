# Thin: the build is CMake's. `make run` and `make test` do everything on a fresh Debian 12 as root,
# package installation included.

BUILD_PACKAGES := build-essential cmake ninja-build pkg-config protobuf-compiler \
	protobuf-c-compiler libprotobuf-c-dev libprotobuf-dev libgrpc-dev grpc-proto libssl-dev \
	libsystemd-dev libjansson-dev libyaml-dev libsmartcols-dev libwebsockets-dev libsqlite3-dev \
	uthash-dev scdoc
TEST_PACKAGES := $(BUILD_PACKAGES) clang libclang-rt-14-dev clang-format clang-tidy cppcheck \
	libcriterion-dev openssl binutils git iproute2 nftables tmux vim-tiny procps

JOBS ?= $(shell nproc)
# Most cases wait for daemons most of the time. One that fails on a busy machine is run again, and both
# runs are shown; one that fails twice fails.
TEST_JOBS ?= $(shell expr 2 \* $$(nproc))
BUF := tests/proto/node_modules/.bin/buf

.PHONY: help run build test test-long test-nspawn test-vm bench bench-fleet bench-ledger lint format \
	proto clean

help:
	@echo 'make run        build, start a local orchestrator and sandbox, run a first command'
	@echo 'make test       everything that a change must pass'
	@echo 'make test-long  the same under ThreadSanitizer, longer fuzzing, a machine with systemd'
	@echo 'make test-vm    limits, reboots and clones in an emulated machine'
	@echo 'make bench      figures, as ratios within one run'
	@echo 'make bench-ledger  what the output of commands costs on disk'
	@echo 'make bench-fleet  what a fleet of simulated agents costs the orchestrator'
	@echo 'make lint       clang-format, clang-tidy, cppcheck, proto lint'
	@echo 'make format     let clang-format rewrite the sources'

run:
	@scripts/install-packages $(BUILD_PACKAGES)
	@scripts/build release --quiet -DBUILD_TESTING=OFF
	@exec build/release/dev/sandstorm-up

build:
	@scripts/install-packages $(BUILD_PACKAGES)
	@scripts/build dev

test: lint
	@scripts/build release -DBUILD_TESTING=ON
	@scripts/build asan
	ctest --preset release -j $(TEST_JOBS) --repeat until-pass:2
	ctest --preset asan -j $(TEST_JOBS) --repeat until-pass:2

# Criterion does not run under ThreadSanitizer, so the tests of the release build drive the daemons of
# the other one.
test-long: test
	@scripts/build tsan -DBUILD_TESTING=OFF
	SANDSTORM_TEST_BUILD=$(CURDIR)/build/tsan \
	TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=$(CURDIR)/tests/tsan.supp" \
		ctest --preset release -j $(JOBS) -L integration -E '^(foreign|up|load)'
	SANDSTORM_FUZZ_RUNS=200000 ctest --preset asan -j $(JOBS) -L fuzz
	@$(MAKE) --no-print-directory test-nspawn

# A machine with systemd, its journal read from outside. Root, and a mirror for the first time.
test-nspawn:
	@scripts/install-packages $(TEST_PACKAGES) mmdebstrap systemd
	@scripts/build release --quiet -DBUILD_TESTING=ON
	tests/nspawn/run build/release

# A machine with a kernel of its own, emulated; KVM is not needed. Root, and a mirror for the first time.
# CASES=memory runs those whose name has that in it.
test-vm:
	@scripts/install-packages $(BUILD_PACKAGES) qemu-system-x86 qemu-utils mmdebstrap e2fsprogs jq
	@scripts/build release --quiet -DBUILD_TESTING=OFF
	tests/vm/run build/release $(CASES)

bench:
	@scripts/install-packages $(BUILD_PACKAGES)
	@scripts/build release --quiet -DBUILD_TESTING=OFF
	@build/release/bench/sandstorm-bench

# AGENTS=2000 SECONDS=300 unless said otherwise.
bench-fleet:
	@scripts/install-packages $(BUILD_PACKAGES)
	@scripts/build release --quiet -DBUILD_TESTING=OFF
	@build/release/bench/sandstorm-bench-fleet $(if $(AGENTS),--agents $(AGENTS)) \
		$(if $(SECONDS),--seconds $(SECONDS))

# DIR=. unless said otherwise: the disk is what counts.
bench-ledger:
	@scripts/install-packages $(BUILD_PACKAGES)
	@scripts/build release --quiet -DBUILD_TESTING=OFF
	@build/release/bench/sandstorm-bench-ledger $(if $(DIR),--dir $(DIR))

lint: proto
	@scripts/install-packages $(TEST_PACKAGES)
	@scripts/build asan --configure-only
	@scripts/lint asan

proto: $(BUF)
	@tests/checks/proto

$(BUF): tests/proto/package.json
	@command -v npm >/dev/null || scripts/install-packages npm
	@npm install --prefix tests/proto --no-audit --no-fund --loglevel=error
	@touch $@

format:
	@scripts/install-packages clang-format
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build tests/proto/node_modules
