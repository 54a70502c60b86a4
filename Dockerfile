# One image a part: docker build --target collector|runtime|dashboard .
FROM python:3.11-slim AS base
WORKDIR /evenkeel
RUN useradd --create-home --uid 10001 evenkeel && mkdir /data && chown evenkeel /data
ENV PYTHONUNBUFFERED=1 EVENKEEL_DATA_DIR=/data
COPY pyproject.toml README.md ./
COPY evenkeel ./evenkeel
COPY runtime ./runtime
COPY collector ./collector
COPY dashboard ./dashboard
COPY evals ./evals
COPY golden_datasets ./golden_datasets
COPY slos.yaml ./

FROM base AS collector
RUN pip install --no-cache-dir '.[collector,embedded]'
USER evenkeel
VOLUME /data
EXPOSE 4317 4318 8123
ENTRYPOINT ["evenkeel"]
CMD ["collect", "--host", "0.0.0.0"]

FROM base AS dashboard
RUN pip install --no-cache-dir '.[dashboard]'
USER evenkeel
EXPOSE 8501
ENTRYPOINT ["evenkeel"]
CMD ["dashboard", "--host", "0.0.0.0"]

# The locked CPU environment. For a GPU, start from vLLM's own image and `pip install evenkeel`.
FROM base AS runtime
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ libnuma1 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements-cpu.lock ./
RUN pip install --no-cache-dir --no-deps -r requirements-cpu.lock \
        --extra-index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir --no-deps --no-build-isolation .
USER evenkeel
EXPOSE 8000
ENTRYPOINT ["evenkeel"]
CMD ["serve", "demo", "--host", "0.0.0.0"]
