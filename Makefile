# Every target does the set-up first; the second time it costs nothing.
STAMP := .venv/.set-up

.PHONY: setup demo test check format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml rglink/frontend/rglink-rustc scripts/setup.sh scripts/toolchain.sh
	@sh scripts/setup.sh
	@touch $@

# Builds the sample workspace into fat binaries, by cargo and by hand, shows what is in them and runs two kernels.
demo: $(STAMP)
	@sh scripts/demo.sh

test: $(STAMP)
	.venv/bin/python -m pytest -n 2 tests

check: $(STAMP)
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy --strict rglink tests benchmarks

format: $(STAMP)
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# Link times against rustc's own linker, as ratios.
bench: $(STAMP)
	@sh scripts/bench.sh

clean:
	rm -rf demo-out benchmarks/out samples/target
