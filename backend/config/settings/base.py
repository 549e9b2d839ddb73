"""Settings that every installation shares."""

from urllib.parse import unquote, urlsplit

from csp.constants import NONCE, NONE, SELF
from psycopg.conninfo import conninfo_to_dict

from backend.config.documentation import add_content_security_policy
from backend.domain.status import State as PipelineState
from backend.network.postgresql import TCP, BoundedConnection
from backend.network.redis_client import ANSWER_SECONDS, redis_address
from backend.settings import ROOT, ConsoleSettings, platform_settings

BASE_DIR = ROOT
CONSOLE = ConsoleSettings()

SECRET_KEY = CONSOLE.django_secret_key.get_secret_value() or "not-for-production"
DEBUG = False
ALLOWED_HOSTS = [*CONSOLE.allowed_hosts.split(","), urlsplit(CONSOLE.public_url).hostname or ""]

INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig",  # which imports no pages: the addresses do, in the console
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "backend.apps.workspaces",
    "backend.apps.audit",
    "backend.apps.identity",
    "backend.apps.connectors",
    "backend.apps.pipelines",
    "backend.apps.exports",
    "backend.apps.collections",
    "backend.apps.change_streams",
    "backend.apps.manager",
    "backend.apps.config_files",
    "backend.apps.kafka_proxies",
    "backend.apps.sql",
    "backend.apps.kafka_sink",
    "backend.apps.read_gateway",
    "backend.apps.deliveries",
    "backend.apps.usage",
    "backend.apps.jobs",
    "backend.apps.monitoring",
    "backend.apps.demo",
    "backend.runtime",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "csp.middleware.CSPMiddleware",
    "backend.config.middleware.UnstorableRequestMiddleware",
    "backend.config.middleware.UnavailableServiceMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "backend.config.middleware.ProviderSessionMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "backend.config.urls"
ASGI_APPLICATION = "backend.config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "backend/config/templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# The address may name several hosts, and every parameter of libpq.
_database = conninfo_to_dict(CONSOLE.database_url)
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _database.pop("host", ""),
        "PORT": _database.pop("port", ""),
        "NAME": _database.pop("dbname", ""),
        "USER": _database.pop("user", ""),
        "PASSWORD": _database.pop("password", "") or CONSOLE.database_password.get_secret_value(),
        "OPTIONS": {
            "pool": {"min_size": 1, "max_size": 8, "timeout": 5, "connection_class": BoundedConnection},
            "connect_timeout": 3,
            **TCP,
            **_database,
        },
    }
}

REDIS_URL = platform_settings().redis_url

# Each process reads what its own sockets show, so groups need not reach further. Two messages wait for a slow browser.
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer", "CONFIG": {"capacity": 2}}}

_redis = redis_address()
CELERY_BROKER_URL = _redis.celery_url
CELERY_BROKER_USE_SSL = _redis.tls
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Longer than the second for which the worker waits for a task.
    "socket_timeout": 5.0,
    "socket_connect_timeout": ANSWER_SECONDS,
    "health_check_interval": 10,
    **_redis.celery_options,
}
# Two more threads supervise jobs and evaluate alert rules; each may need a connection of the pool.
CELERY_WORKER_CONCURRENCY = 6
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULE = {
    "provisionings": {
        "task": "backend.apps.pipelines.tasks.provisionings_advance",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "registrations": {
        "task": "backend.apps.pipelines.tasks.registrations_watch",
        "schedule": 60.0,
        "options": {"expires": 30},
    },
    "tables of databases": {
        "task": "backend.apps.sql.tasks.imports_follow",
        "schedule": 60.0,
        "options": {"expires": 30},
    },
    "files without messages": {
        "task": "backend.apps.exports.tasks.empty_files_form",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "collections": {
        "task": "backend.apps.collections.tasks.collections_maintain",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "unused collection files": {
        "task": "backend.apps.collections.tasks.collections_vacuum",
        "schedule": 3600.0,
        "options": {"expires": 600},
    },
    "consumer-groups": {
        "task": "backend.apps.read_gateway.tasks.consumer_groups_retention",
        "schedule": 3600.0,
        "options": {"expires": 600},
    },
    "retention": {"task": "backend.apps.deliveries.tasks.retention", "schedule": 3600.0, "options": {"expires": 600}},
    "sessions": {
        "task": "backend.apps.identity.tasks.sessions_expire",
        "schedule": 3600.0,
        "options": {"expires": 600},
    },
}

# smtp://user:password@host:587?tls=yes, and the sender of mails.
_mail = urlsplit(CONSOLE.mail_url.get_secret_value())
EMAIL_HOST = _mail.hostname or "localhost"
EMAIL_PORT = _mail.port or 25
EMAIL_HOST_USER = unquote(_mail.username or "")
EMAIL_HOST_PASSWORD = unquote(_mail.password or "")
EMAIL_USE_TLS = "tls=yes" in _mail.query
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = CONSOLE.mail_from

AUTH_USER_MODEL = "workspaces.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
if CONSOLE.oidc_issuer:
    AUTHENTICATION_BACKENDS.append("backend.apps.identity.backend.KeycloakBackend")

# mozilla-django-oidc; Keycloak's addresses follow from its issuer.
_endpoints = f"{CONSOLE.oidc_issuer}/protocol/openid-connect"
OIDC_OP_AUTHORIZATION_ENDPOINT = f"{_endpoints}/auth"
OIDC_OP_TOKEN_ENDPOINT = f"{_endpoints}/token"
OIDC_OP_USER_ENDPOINT = f"{_endpoints}/userinfo"
OIDC_OP_JWKS_ENDPOINT = f"{_endpoints}/certs"
OIDC_RP_CLIENT_ID = CONSOLE.oidc_client_id
OIDC_RP_CLIENT_SECRET = CONSOLE.oidc_client_secret.get_secret_value()
OIDC_RP_SIGN_ALGO = "RS256"
OIDC_RP_SCOPES = "openid email profile"
OIDC_USE_PKCE = True
OIDC_STORE_ID_TOKEN = True
OIDC_TIMEOUT = 10
LOGIN_REDIRECT_URL = "/"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_TRUSTED_ORIGINS = [CONSOLE.public_url]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "backend.apps.workspaces.authentication.ApiKeyAuthentication",
        "backend.apps.identity.authentication.JwtAuthentication",
        "backend.apps.workspaces.authentication.WorkspaceSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["backend.apps.workspaces.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["backend.apps.rest.parsers.ScreenedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_FILTER_BACKENDS": [
        "django_filters.rest_framework.DjangoFilterBackend",
        "rest_framework.filters.SearchFilter",
    ],
    "DEFAULT_PAGINATION_CLASS": "backend.apps.rest.pagination.ByNewest",
    "PAGE_SIZE": 50,
    "EXCEPTION_HANDLER": "backend.config.problems.problem_handler",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Headrace",
    "DESCRIPTION": "Manage connectors, pipelines and jobs of a Headrace installation.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "DEFAULT_GENERATOR_CLASS": "backend.config.openapi.Generator",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "WEBHOOKS": ["backend.apps.monitoring.api.live.news", "backend.apps.monitoring.api.live.stale"],
    "ENUM_NAME_OVERRIDES": {
        "BreakerStateEnum": "backend.domain.breaker.BreakerState",
        "DeadLetterStateEnum": "backend.apps.deliveries.models.DeadLetter.State",
        "ExportStateEnum": "backend.apps.exports.models.Export.State",
        "FileFormatEnum": ["jsonl", "csv", "parquet", "avro"],
        "FormatEnum": ["csv", "xml", "avro"],
        "OnMissingEnum": ["skip", "drop", "dead_letter"],
        "PipelineStateEnum": [state.value for state in PipelineState],
    },
}

STATIC_URL = "/static/"
STATIC_ROOT = CONSOLE.var / "static"
FRONTEND_DIST = ROOT / "frontend/dist"
STATICFILES_DIRS = [FRONTEND_DIST] if FRONTEND_DIST.exists() else []
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
# The build puts a hash of its content into the name of each file there.
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/assets/"
# The documentation, if it has been built: its folder `docs` is served at /docs/.
WHITENOISE_ROOT = ROOT / "site" if (ROOT / "site").exists() else None
WHITENOISE_INDEX_FILE = True
WHITENOISE_ADD_HEADERS_FUNCTION = add_content_security_policy

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
