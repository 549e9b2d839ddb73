import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * Reads rows by JDBC for process.py: requests come on standard input, each a number of texts and the texts; answers go
 * to standard output, each a letter, the number of bytes that follow, and texts. It ends when standard input does,
 * whatever its driver is doing.
 *
 * Compiled when it starts by Janino, which knows neither lambdas nor inference of types.
 */
public class JdbcReader {
    private static final int FETCHED_ROWS = 500;
    private static final int ESTIMATE_SECONDS = 5;
    private static final char[] DIGITS = "0123456789abcdef".toCharArray();

    private final DataOutputStream out;
    private Connection connection;
    private boolean hasTransactions = true;

    private JdbcReader(DataOutputStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        FileOutputStream raw = new FileOutputStream(FileDescriptor.out);
        final JdbcReader reader = new JdbcReader(new DataOutputStream(new BufferedOutputStream(raw, 1 << 16)));
        PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
        System.setOut(nowhere); // some drivers print
        System.setErr(nowhere);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        final LinkedBlockingQueue requests = new LinkedBlockingQueue();
        Thread worker = new Thread(new Runnable() {
            public void run() {
                reader.answerForever(requests);
            }
        });
        worker.setDaemon(true);
        worker.start();
        try {
            while (true) {
                String[] request = new String[in.readInt()];
                for (int i = 0; i < request.length; i++) {
                    request[i] = text(in);
                }
                requests.put(request);
            }
        } catch (EOFException end) {
            Runtime.getRuntime().halt(0);
        }
    }

    private static String text(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private void answerForever(LinkedBlockingQueue requests) {
        try {
            send('W', new String[0]);
            out.flush();
            while (true) {
                String[] request = (String[]) requests.take();
                try {
                    answer(request);
                    send('D', new String[0]);
                } catch (SQLException error) {
                    fail(error, error.getSQLState(), error.getErrorCode());
                } catch (RuntimeException error) {
                    fail(error, null, 0);
                } catch (LinkageError error) { // a driver that lacks a library
                    fail(error, null, 0);
                } catch (OutOfMemoryError error) {
                    fail(error, "memory", 0);
                }
                out.flush();
            }
        } catch (Throwable error) { // nobody reads the answers any more
            Runtime.getRuntime().halt(1);
        }
    }

    private void answer(String[] request) throws SQLException, IOException {
        String operation = request[0];
        if (operation.equals("open")) {
            open(request[1], request[2], request[3]);
        } else if (operation.equals("table")) {
            table(request[1]);
        } else if (operation.equals("columns")) {
            columns(request[1]);
        } else if (operation.equals("count")) {
            count(request);
        } else {
            rows(request);
        }
    }

    private void open(String url, String user, String password) throws SQLException, IOException {
        Properties properties = new Properties();
        if (!user.isEmpty()) {
            properties.setProperty("user", user);
            properties.setProperty("password", password);
        }
        connection = DriverManager.getConnection(url, properties);
        try {
            connection.setReadOnly(true);
            connection.setAutoCommit(false); // some drivers read everything at once otherwise
        } catch (SQLException unsupported) { // by databases without transactions
            hasTransactions = false;
        }
        DatabaseMetaData data = connection.getMetaData();
        String quote = data.getIdentifierQuoteString();
        send('R', new String[] {
            data.getDatabaseProductName(), data.getDatabaseProductVersion(), data.getDriverName(),
            quote == null ? "" : quote.trim()
        });
    }

    /** The table's schema and name as the database writes them, and the columns of its primary key. */
    private void table(String name) throws SQLException, IOException {
        int dot = name.indexOf('.');
        String schema = dot < 0 ? null : name.substring(0, dot);
        String table = name.substring(dot + 1);
        DatabaseMetaData data = connection.getMetaData();
        String[] described = described(data, schema, table);
        if (described == null) {
            described = described(data, schema == null ? null : schema.toUpperCase(), table.toUpperCase());
        }
        if (described == null) {
            described = described(data, schema == null ? null : schema.toLowerCase(), table.toLowerCase());
        }
        if (described == null) {
            return;
        }
        TreeMap key = new TreeMap();
        ResultSet keys = data.getPrimaryKeys(described[0], described[1], described[2]);
        while (keys.next()) {
            key.put(Integer.valueOf(keys.getInt("KEY_SEQ")), keys.getString("COLUMN_NAME"));
        }
        keys.close();
        List answer = new ArrayList();
        answer.add(schema == null ? "" : described[1]);
        answer.add(described[2]);
        answer.addAll(key.values());
        send('R', (String[]) answer.toArray(new String[0]));
        endTransaction();
    }

    private String[] described(DatabaseMetaData data, String schema, String table) throws SQLException {
        String escape = data.getSearchStringEscape();
        String pattern = table.replace("_", escape + "_").replace("%", escape + "%");
        String own = schema == null ? connection.getSchema() : schema;
        ResultSet tables = data.getTables(connection.getCatalog(), own, pattern, null);
        try {
            while (tables.next()) {
                if (table.equals(tables.getString("TABLE_NAME"))) {
                    return new String[] {
                        tables.getString("TABLE_CAT"), tables.getString("TABLE_SCHEM"), table
                    };
                }
            }
            return null;
        } finally {
            tables.close();
        }
    }

    private void columns(String statement) throws SQLException, IOException {
        PreparedStatement prepared = connection.prepareStatement(statement);
        try {
            ResultSet rows = prepared.executeQuery();
            ResultSetMetaData data = rows.getMetaData();
            String[] names = new String[data.getColumnCount()];
            for (int i = 0; i < names.length; i++) {
                names[i] = data.getColumnLabel(i + 1);
            }
            send('R', names);
        } finally {
            prepared.close();
        }
        endTransaction();
    }

    private void count(String[] request) throws SQLException, IOException {
        PreparedStatement prepared = prepared(request, 2);
        try {
            prepared.setQueryTimeout(ESTIMATE_SECONDS);
            ResultSet rows = prepared.executeQuery();
            rows.next();
            send('R', new String[] {rows.getString(1)});
        } finally {
            prepared.close();
            endTransaction();
        }
    }

    /** By a statement, the numbers of the columns of key and position, and the parameters. */
    private void rows(String[] request) throws SQLException, IOException {
        String[] keys = request[2].isEmpty() ? new String[0] : request[2].split(",");
        String[] positions = request[3].isEmpty() ? new String[0] : request[3].split(",");
        PreparedStatement prepared = prepared(request, 4);
        try {
            prepared.setFetchSize(FETCHED_ROWS);
            ResultSet rows = prepared.executeQuery();
            Column[] columns = columns(rows.getMetaData());
            String[] sent = new String[1 + keys.length + positions.length];
            while (rows.next()) {
                StringBuilder body = new StringBuilder("{");
                for (int i = 0; i < columns.length; i++) {
                    columns[i].read(rows);
                    body.append(i == 0 ? "" : ",").append(columns[i].quoted).append(':').append(columns[i].json);
                }
                sent[0] = body.append('}').toString();
                for (int i = 0; i < keys.length; i++) {
                    sent[1 + i] = columns[Integer.parseInt(keys[i])].text;
                }
                for (int i = 0; i < positions.length; i++) {
                    Column column = columns[Integer.parseInt(positions[i])];
                    sent[1 + keys.length + i] = column.kind + ":" + column.text;
                }
                send('R', sent);
            }
        } finally {
            prepared.close();
        }
        endTransaction();
    }

    private void endTransaction() throws SQLException {
        if (hasTransactions) {
            connection.rollback();
        }
    }

    private PreparedStatement prepared(String[] request, int first) throws SQLException {
        PreparedStatement prepared = connection.prepareStatement(request[1]);
        for (int i = first; i < request.length; i++) {
            bind(prepared, i - first + 1, request[i].charAt(0), request[i].substring(2));
        }
        return prepared;
    }

    private static void bind(PreparedStatement prepared, int number, char kind, String text) throws SQLException {
        switch (kind) {
            case 'i':
                prepared.setLong(number, Long.parseLong(text));
                break;
            case 'n':
                prepared.setBigDecimal(number, new BigDecimal(text));
                break;
            case 'd':
                prepared.setObject(number, LocalDate.parse(text));
                break;
            case 'l':
                prepared.setObject(number, LocalDateTime.parse(text));
                break;
            case 'o':
                prepared.setObject(number, OffsetDateTime.parse(text));
                break;
            default:
                prepared.setString(number, text);
        }
    }

    private static Column[] columns(ResultSetMetaData data) throws SQLException {
        Column[] columns = new Column[data.getColumnCount()];
        for (int i = 0; i < columns.length; i++) {
            String name = data.getColumnLabel(i + 1);
            columns[i] = new Column(i + 1, name, data.getColumnType(i + 1), data.getColumnTypeName(i + 1));
        }
        return columns;
    }

    /** The value of a column in the row that was read last: as JSON, as text, and of which kind it is as a parameter. */
    private static class Column {
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
            this.quoted = quote(name);
            this.type = type;
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
                    json = text == null ? null : quote(text);
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
                json = quote(text);
            }
        }

        private void readFloat(Object value) {
            text = value == null ? null : value.toString();
            boolean isFinite = text != null && !text.equals("NaN") && !text.endsWith("Infinity");
            json = isFinite ? text : quote(String.valueOf(text));
            kind = isFinite ? 'n' : 's';
        }

        private void readBytes(byte[] value) {
            text = value == null ? null : Base64.getEncoder().encodeToString(value);
            json = value == null ? null : quote(text);
        }

        /** Drivers differ in what they give of a type, and in how they write it: the first class that works is kept. */
        private void readTemporal(ResultSet rows) throws SQLException {
            Class[] classes = {temporal, OffsetDateTime.class, LocalDateTime.class};
            for (int i = 0; i < classes.length; i++) {
                try {
                    Object value = rows.getObject(number, classes[i]);
                    temporal = classes[i];
                    text = value == null ? null : written(value);
                    json = value == null ? null : quote(text);
                    return;
                } catch (SQLException other) {
                    continue;
                }
            }
            text = rows.getString(number);
            json = text == null ? null : quote(text);
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

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder(text.length() + 2).append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append("\\u00").append(DIGITS[c >> 4]).append(DIGITS[c & 15]);
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }

    /** SQLSTATE, the database's number, the sentence, and that of the innermost cause. */
    private void fail(Throwable error, String state, int code) throws IOException {
        Throwable cause = error;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        send('E', new String[] {
            state == null ? "" : state, String.valueOf(code), String.valueOf(error.getMessage()),
            cause.getMessage() == null ? "" : cause.getMessage()
        });
        try {
            if (connection != null) {
                endTransaction();
            }
        } catch (SQLException lost) {
            return; // whoever uses the connection next is told
        }
    }

    private void send(char kind, String[] texts) throws IOException {
        byte[][] encoded = new byte[texts.length][];
        int size = 0;
        for (int i = 0; i < texts.length; i++) {
            encoded[i] = texts[i].getBytes(StandardCharsets.UTF_8);
            size += 4 + encoded[i].length;
        }
        out.writeByte(kind);
        out.writeInt(size);
        for (int i = 0; i < texts.length; i++) {
            out.writeInt(encoded[i].length);
            out.write(encoded[i]);
        }
    }
}
