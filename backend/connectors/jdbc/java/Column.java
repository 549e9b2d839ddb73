import java.math.BigDecimal;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Base64;

/** The value of a column in the row that was read last: as JSON, as text, and of which kind it is as a parameter. */
class Column {
    final String quoted;
    String json;
    String text;
    char kind;
    private final int number;
    private final int type;
    private final boolean isJson;
    private Class temporal;

    Column(int number, String name, int type, String typeName) {
        this.number = number;
        this.quoted = Json.quote(name);
        this.type = "uuid".equalsIgnoreCase(typeName) ? Types.OTHER : type; // to H2 they are binary
        this.isJson = typeName != null && typeName.toLowerCase().startsWith("json");
        this.temporal = firstTemporal(type);
    }

    void read(ResultSet rows) throws SQLException {
        kind = 's';
        if (isJson) {
            text = rows.getString(number);
            json = text;
        } else if (temporal != null) {
            readTemporal(rows);
        } else {
            readOther(rows);
        }
        if (text == null || rows.wasNull()) {
            text = "";
            json = "null";
        }
    }

    private void readOther(ResultSet rows) throws SQLException {
        switch (type) {
            case Types.TINYINT:
            case Types.SMALLINT:
            case Types.INTEGER:
            case Types.BIGINT:
            case Types.NUMERIC:
            case Types.DECIMAL:
                readNumber(rows);
                break;
            case Types.REAL:
            case Types.FLOAT:
            case Types.DOUBLE:
                readFloat(rows.getObject(number));
                break;
            case Types.BIT:
            case Types.BOOLEAN:
                Object value = rows.getObject(number);
                if (value instanceof byte[]) {
                    readBytes((byte[]) value);
                } else {
                    text = String.valueOf(rows.getBoolean(number));
                    json = text;
                }
                break;
            case Types.BINARY:
            case Types.VARBINARY:
            case Types.LONGVARBINARY:
            case Types.BLOB:
                readBytes(rows.getBytes(number));
                break;
            default:
                text = rows.getString(number);
                json = text == null ? null : Json.quote(text);
        }
    }

    private void readNumber(ResultSet rows) throws SQLException {
        text = rows.getString(number);
        if (text == null) {
            return;
        }
        try {
            BigDecimal value = new BigDecimal(text);
            text = value.toPlainString();
            json = text;
            kind = value.scale() <= 0 && value.precision() < 19 ? 'i' : 'n';
        } catch (NumberFormatException notANumber) { // NaN, or a type of the database's own
            json = Json.quote(text);
        }
    }

    private void readFloat(Object value) {
        text = value == null ? null : value.toString();
        boolean isFinite = text != null && !text.equals("NaN") && !text.endsWith("Infinity");
        json = isFinite ? text : Json.quote(String.valueOf(text));
        kind = isFinite ? 'n' : 's';
    }

    private void readBytes(byte[] value) {
        text = value == null ? null : Base64.getEncoder().encodeToString(value);
        json = value == null ? null : Json.quote(text);
    }

    /** Drivers differ in what they give of a type, and in how they write it: the first class that works is kept. */
    private void readTemporal(ResultSet rows) throws SQLException {
        Class[] classes = {temporal, OffsetDateTime.class, LocalDateTime.class};
        for (int i = 0; i < classes.length; i++) {
            try {
                Object value = rows.getObject(number, classes[i]);
                temporal = classes[i];
                text = value == null ? null : written(value);
                json = value == null ? null : Json.quote(text);
                return;
            } catch (SQLException other) {
                continue;
            }
        }
        text = rows.getString(number);
        json = text == null ? null : Json.quote(text);
    }

    private String written(Object value) {
        if (value instanceof LocalDateTime) {
            kind = 'l';
            return DateTimeFormatter.ISO_LOCAL_DATE_TIME.format((LocalDateTime) value);
        }
        if (value instanceof OffsetDateTime) {
            kind = 'o';
            return DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss").format((OffsetDateTime) value)
                + fraction(((OffsetDateTime) value).getNano()) + offset((OffsetDateTime) value);
        }
        if (value instanceof LocalTime) {
            return DateTimeFormatter.ISO_LOCAL_TIME.format((LocalTime) value);
        }
        kind = 'd';
        return value.toString();
    }

    private static String fraction(int nano) {
        if (nano == 0) {
            return "";
        }
        String digits = String.valueOf(1000000000 + nano).substring(1);
        int end = digits.length();
        while (digits.charAt(end - 1) == '0') {
            end--;
        }
        return "." + digits.substring(0, end);
    }

    private static String offset(OffsetDateTime value) {
        String id = value.getOffset().getId();
        return id.equals("Z") ? "+00:00" : id;
    }

    private static Class firstTemporal(int type) {
        switch (type) {
            case Types.DATE:
                return LocalDate.class;
            case Types.TIME:
                return LocalTime.class;
            case Types.TIMESTAMP:
                return LocalDateTime.class;
            case Types.TIMESTAMP_WITH_TIMEZONE:
            case -155: // SQL Server's datetimeoffset
                return OffsetDateTime.class;
            default:
                return null;
        }
    }
}
