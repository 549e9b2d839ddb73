from backend.connectors.sql.mysql.session import MysqlSession

__all__ = ["MysqlSession"]
