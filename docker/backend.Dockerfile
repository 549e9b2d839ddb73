# One image for every process of Headrace, Spark's master and workers among them; the command selects which.
ARG PYTHON_IMAGE_VERSION
ARG NODE_IMAGE_VERSION

FROM node:${NODE_IMAGE_VERSION} AS frontend
WORKDIR /build
COPY frontend/package.json frontend/package-lock.json ./
RUN npm ci
COPY frontend ./
RUN npm run build

FROM python:${PYTHON_IMAGE_VERSION}
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/headrace
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY manage.py pyproject.toml ./
COPY backend backend
COPY spark_jobs spark_jobs
COPY docker/versions.env docker/jars.sha256 docker/
COPY --from=frontend /build/dist frontend/dist
COPY mkdocs.yml ./
COPY docs docs
COPY frontend/src/locales frontend/src/locales
COPY frontend/public frontend/public
COPY tests/bench/results tests/bench/results
RUN python -m backend.runtime.documentation
RUN python -m compileall -q backend spark_jobs && python -m backend.runtime.jars && rm -r var/jars/cache
# New volumes take over the owner of these folders.
RUN useradd --uid 1000 headrace && install -d -o headrace /var/lib/headrace && install -d -o headrace -m 700 /etc/headrace/secrets
USER 1000
ENV DJANGO_SETTINGS_MODULE=backend.config.settings.prod \
    PYTHONPATH=/opt/headrace \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADRACE_SPARK_JARS=/opt/headrace/var/jars/spark
