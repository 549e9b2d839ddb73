import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.OffsetTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.format.ResolverStyle;
import java.time.temporal.ChronoField;
import java.time.temporal.TemporalAccessor;
import java.util.Base64;
import java.util.HexFormat;

/** A column that is written: it takes values of JSON, each with a letter for its kind, as its type needs them. */
class Target {
    private static final int SHOWN_CHARACTERS = 100;
    private static final int MOST_DIGITS = 150000; // more than any database keeps
    private static final DateTimeFormatter MOMENT = new DateTimeFormatterBuilder().parseCaseInsensitive()
        .append(DateTimeFormatter.ISO_LOCAL_DATE).appendPattern("['T'][' ']").append(DateTimeFormatter.ISO_LOCAL_TIME)
        .appendPattern("[XXX][XX][X]").toFormatter().withResolverStyle(ResolverStyle.STRICT);
    private static final DateTimeFormatter TIME = new DateTimeFormatterBuilder().parseCaseInsensitive()
        .append(DateTimeFormatter.ISO_LOCAL_TIME).appendPattern("[XXX][XX][X]").toFormatter()
        .withResolverStyle(ResolverStyle.STRICT);

    private final String name;
    private final String type;
    private final String lower;
    private final int code;
    private final String product;
    private final boolean isPostgresql;

    /** driver and product are the names that the connection gives. */
    Target(String name, String type, int code, String driver, String product) {
        this.name = name;
        this.type = type;
        this.lower = type.toLowerCase();
        this.code = code;
        this.product = product;
        this.isPostgresql = driver.startsWith("PostgreSQL");
    }

    /** Whatever does not fit is an error of the value. */
    void bind(PreparedStatement prepared, int number, String value) throws SQLException {
        if (value.isEmpty()) {
            prepared.setNull(number, isPostgresql ? Types.OTHER : code);
            return;
        }
        char kind = value.charAt(0);
        String text = value.substring(2);
        try {
            bind(prepared, number, kind, text);
        } catch (SQLException error) {
            String state = error.getSQLState();
            if (state != null && (state.startsWith("08") || state.startsWith("22"))) {
                throw error;
            }
            throw misfit(kind, text, "does not fit (" + error.getMessage() + ")");
        } catch (RuntimeException error) {
            throw misfit(kind, text, "does not fit (" + error.getMessage() + ")");
        }
    }

    private void bind(PreparedStatement prepared, int number, char kind, String text) throws SQLException {
        if (lower.startsWith("json")) {
            bindJson(prepared, number, kind == 's' ? Json.quote(text) : text);
        } else if (lower.equals("uuid")) {
            bindText(prepared, number, text);
        } else if (code == Types.TIMESTAMP || isZoned()) {
            OffsetDateTime moment = moment(kind, text);
            if (isZoned()) {
                prepared.setObject(number, moment);
            } else {
                prepared.setObject(number, moment.withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime());
            }
        } else {
            bindOther(prepared, number, kind, text);
        }
    }

    private boolean isZoned() {
        return code == Types.TIMESTAMP_WITH_TIMEZONE
            || code == -155 // SQL Server's datetimeoffset
            || code == -101 || code == -102 // Oracle's timestamps with a zone, and with that of the session
            || lower.equals("timestamptz") || lower.startsWith("timestamp") && lower.contains("with time zone");
    }

    private void bindOther(PreparedStatement prepared, int number, char kind, String text) throws SQLException {
        switch (code) {
            case Types.TINYINT:
                bindWhole(prepared, number, whole(kind, text, -128, 255));
                break;
            case Types.SMALLINT:
                bindWhole(prepared, number, whole(kind, text, Short.MIN_VALUE, Short.MAX_VALUE));
                break;
            case Types.INTEGER:
                bindWhole(prepared, number, whole(kind, text, Integer.MIN_VALUE, Integer.MAX_VALUE));
                break;
            case Types.BIGINT:
                bindWhole(prepared, number, whole(kind, text, Long.MIN_VALUE, Long.MAX_VALUE));
                break;
            case Types.NUMERIC:
            case Types.DECIMAL:
                prepared.setBigDecimal(number, decimal(kind, text));
                break;
            case Types.REAL:
            case Types.FLOAT:
            case Types.DOUBLE:
                prepared.setDouble(number, real(kind, text));
                break;
            case Types.BIT:
            case Types.BOOLEAN:
                bindFlag(prepared, number, kind, text);
                break;
            case Types.DATE:
                prepared.setObject(number, date(kind, text));
                break;
            case Types.TIME:
            case Types.TIME_WITH_TIMEZONE:
                bindTime(prepared, number, kind, text);
                break;
            case Types.BINARY:
            case Types.VARBINARY:
            case Types.LONGVARBINARY:
            case Types.BLOB:
                prepared.setBytes(number, bytes(kind, text));
                break;
            case Types.NCHAR:
            case Types.NVARCHAR:
            case Types.LONGNVARCHAR:
            case Types.NCLOB:
                prepared.setNString(number, text);
                break;
            default:
                bindText(prepared, number, text);
        }
    }

    /** PostgreSQL converts a text whose type is left open to whatever the column is. */
    private void bindText(PreparedStatement prepared, int number, String text) throws SQLException {
        if (isPostgresql) {
            prepared.setObject(number, text, Types.OTHER);
        } else {
            prepared.setString(number, text);
        }
    }

    private void bindJson(PreparedStatement prepared, int number, String json) throws SQLException {
        if (product.equals("H2")) { // which would make a JSON text of a text
            prepared.setBytes(number, json.getBytes(StandardCharsets.UTF_8));
        } else {
            bindText(prepared, number, json);
        }
    }

    private void bindWhole(PreparedStatement prepared, int number, BigInteger value) throws SQLException {
        if (value.bitLength() < 64) {
            prepared.setLong(number, value.longValue());
        } else {
            prepared.setBigDecimal(number, new BigDecimal(value));
        }
    }

    private BigInteger whole(char kind, String text, long least, long most) throws SQLException {
        BigDecimal value = number(kind, text);
        if (value != null) {
            value = value.signum() == 0 ? BigDecimal.ZERO : value.stripTrailingZeros();
        }
        if (value == null || value.scale() > 0) {
            throw misfit(kind, text, "is not a whole number");
        }
        boolean isUnsigned = lower.contains("unsigned");
        boolean isLow = value.compareTo(BigDecimal.valueOf(isUnsigned ? 0 : least)) < 0;
        boolean isHigh = !isUnsigned && value.compareTo(BigDecimal.valueOf(most)) > 0;
        if (isLow || isHigh || value.precision() - (long) value.scale() > 20) {
            throw tooLarge(kind, text);
        }
        return value.toBigInteger();
    }

    private BigDecimal decimal(char kind, String text) throws SQLException {
        BigDecimal value = number(kind, text);
        if (value == null) {
            throw misfit(kind, text, "is not a number");
        }
        if (value.precision() > MOST_DIGITS || Math.abs((long) value.scale()) > MOST_DIGITS) {
            throw tooLarge(kind, text);
        }
        return value;
    }

    private double real(char kind, String text) throws SQLException {
        if (kind == 's' && (text.equals("NaN") || text.equals("Infinity") || text.equals("-Infinity"))) {
            return Double.parseDouble(text);
        }
        BigDecimal exact = number(kind, text);
        if (exact == null) {
            throw misfit(kind, text, "is not a number");
        }
        double value = exact.doubleValue();
        if (Double.isInfinite(value)) {
            throw tooLarge(kind, text);
        }
        return value;
    }

    /** Null if it is none. Many databases keep truth values as numbers. */
    private BigDecimal number(char kind, String text) {
        if (kind == 'b') {
            return text.equals("true") ? BigDecimal.ONE : BigDecimal.ZERO;
        }
        try {
            return text.length() > MOST_DIGITS ? null : new BigDecimal(text);
        } catch (NumberFormatException notANumber) {
            return null;
        }
    }

    private void bindFlag(PreparedStatement prepared, int number, char kind, String text) throws SQLException {
        String word = text.toLowerCase();
        if (isPostgresql && lower.startsWith("bit")) {
            bindText(prepared, number, kind == 'b' ? (text.equals("true") ? "1" : "0") : text);
        } else if (word.equals("true") || word.equals("1") || word.equals("t")) {
            prepared.setBoolean(number, true);
        } else if (word.equals("false") || word.equals("0") || word.equals("f")) {
            prepared.setBoolean(number, false);
        } else if (kind == 'n' && lower.startsWith("bit")) {
            bindWhole(prepared, number, whole(kind, text, Long.MIN_VALUE, Long.MAX_VALUE));
        } else {
            throw misfit(kind, text, "is neither true nor false");
        }
    }

    /** In UTC where the text has no zone. */
    private OffsetDateTime moment(char kind, String text) throws SQLException {
        try {
            return moment(text);
        } catch (RuntimeException unreadable) {
            throw misfit(kind, text, "is not a date and time");
        }
    }

    private OffsetDateTime moment(String text) {
        if (text.length() == 10) {
            return LocalDate.parse(text).atStartOfDay().atOffset(ZoneOffset.UTC);
        }
        TemporalAccessor parsed = MOMENT.parse(text);
        return LocalDateTime.from(parsed).atOffset(offset(parsed));
    }

    private ZoneOffset offset(TemporalAccessor parsed) {
        boolean isGiven = parsed.isSupported(ChronoField.OFFSET_SECONDS);
        return isGiven ? ZoneOffset.ofTotalSeconds(parsed.get(ChronoField.OFFSET_SECONDS)) : ZoneOffset.UTC;
    }

    private LocalDate date(char kind, String text) throws SQLException {
        try {
            return moment(text).toLocalDate();
        } catch (RuntimeException unreadable) {
            throw misfit(kind, text, "is not a date");
        }
    }

    private void bindTime(PreparedStatement prepared, int number, char kind, String text) throws SQLException {
        OffsetTime time;
        try {
            TemporalAccessor parsed = TIME.parse(text);
            time = LocalTime.from(parsed).atOffset(offset(parsed));
        } catch (RuntimeException unreadable) {
            throw misfit(kind, text, "is not a time");
        }
        if (code == Types.TIME_WITH_TIMEZONE || lower.equals("timetz")) {
            prepared.setObject(number, time);
        } else {
            prepared.setObject(number, time.toLocalTime());
        }
    }

    /** Base64, as they are read, or hexadecimal digits, as they come from tables of PostgreSQL and MySQL. */
    private byte[] bytes(char kind, String text) throws SQLException {
        if (kind == 's') {
            try {
                boolean isHexadecimal = text.startsWith("\\x");
                return isHexadecimal ? HexFormat.of().parseHex(text.substring(2)) : Base64.getDecoder().decode(text);
            } catch (RuntimeException unreadable) {
                throw misfit(kind, text, "is not base64");
            }
        }
        throw misfit(kind, text, "is not base64");
    }

    private SQLException tooLarge(char kind, String text) {
        return new SQLException(sentence(kind, text, "is out of range"), "22003");
    }

    private SQLException misfit(char kind, String text, String why) {
        return new SQLException(sentence(kind, text, why), "22018");
    }

    private String sentence(char kind, String text, String why) {
        String shown = text.length() > SHOWN_CHARACTERS ? text.substring(0, SHOWN_CHARACTERS) + "..." : text;
        return "Column " + name + " takes " + type + ": " + (kind == 's' ? Json.quote(shown) : shown) + " " + why;
    }
}
