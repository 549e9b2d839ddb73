# One image for the console, the workers, the HTTP input and the Spark driver; the command selects which.
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
COPY manage.py ./
COPY backend backend
COPY spark_jobs spark_jobs
COPY docker/versions.env docker/jars.sha256 docker/
COPY --from=frontend /build/dist frontend/dist
RUN useradd --create-home --uid 1000 headrace && mkdir var && chown headrace var \
    && su headrace -c "python -m backend.runtime.jars"
USER 1000
ENV DJANGO_SETTINGS_MODULE=backend.config.settings.prod PYTHONUNBUFFERED=1
CMD ["uvicorn", "backend.config.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--lifespan", "off"]
