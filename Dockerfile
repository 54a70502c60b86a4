# One image per part: docker build --target collector|runtime|dashboard .
# Dependencies come from the locks and before the sources: a change of code reinstalls none of them.
FROM python:3.11-slim AS base
WORKDIR /evenkeel
RUN useradd --create-home --uid 10001 evenkeel && install --directory --mode 0700 --owner evenkeel /data /demo
ENV PYTHONUNBUFFERED=1 EVENKEEL_DATA_DIR=/data

# Our own wheels: the kernel's and each part's.
FROM base AS wheel
COPY requirements-cpu.lock ./
RUN grep -E '^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==' requirements-cpu.lock > build.lock \
    && pip install --no-cache-dir --no-deps -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY evenkeel ./evenkeel
COPY runtime ./runtime
COPY collector ./collector
COPY dashboard ./dashboard
COPY evals ./evals
COPY demo ./demo
COPY golden_datasets ./golden_datasets
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . ./runtime ./collector ./dashboard ./evals ./demo

FROM base AS collector
COPY requirements-collector.lock ./
RUN pip install --no-cache-dir --no-deps -r requirements-collector.lock
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/evenkeel-*.whl /wheels/evenkeel_collector-*.whl
COPY slos.yaml ./
COPY --chown=evenkeel prompts ./prompts
USER evenkeel
VOLUME /data
EXPOSE 4317 4318 8123
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=20 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:4318/readyz', timeout=4)"]
ENTRYPOINT ["evenkeel"]
CMD ["collect", "--host", "0.0.0.0"]

FROM base AS dashboard
COPY requirements-dashboard.lock ./
RUN pip install --no-cache-dir --no-deps -r requirements-dashboard.lock
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/evenkeel-*.whl /wheels/evenkeel_dashboard-*.whl
COPY slos.yaml ./
USER evenkeel
EXPOSE 8501
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=20 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
ENTRYPOINT ["evenkeel"]
CMD ["dashboard", "--host", "0.0.0.0"]

# The locked CPU environment, with the demo and evaluations. For a GPU, start from vLLM's own image and `pip install . ./runtime`.
FROM base AS runtime
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ libnuma1 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements-cpu.lock ./
RUN pip install --no-cache-dir --no-deps -r requirements-cpu.lock \
        --extra-index-url https://download.pytorch.org/whl/cpu
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl
COPY slos.yaml ./
COPY --chown=evenkeel prompts ./prompts
USER evenkeel
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=5s --start-period=300s --retries=20 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["evenkeel"]
CMD ["serve", "demo", "--host", "0.0.0.0"]
