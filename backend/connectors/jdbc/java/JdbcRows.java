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
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
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
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * Reads and writes rows by JDBC for process.py: requests come on standard input, each a number of texts and the texts;
 * answers go to standard output, each a letter, the number of bytes that follow, and texts. It ends when standard input
 * does, whatever its driver is doing.
 *
 * Compiled by Janino (program.py), which knows neither lambdas nor inference of types.
 */
public class JdbcRows {
    private static final int FETCHED_ROWS = 500;
    private static final int ESTIMATE_SECONDS = 5;
    private static final char[] DIGITS = "0123456789abcdef".toCharArray();
    private static final int SHOWN_CHARACTERS = 100;
    private static final int MOST_DIGITS = 150000; // more than any database keeps
    private static final int LONGEST_LIMIT = 1000000; // of texts; larger ones are none
    private static final DateTimeFormatter MOMENT = new DateTimeFormatterBuilder().parseCaseInsensitive()
        .append(DateTimeFormatter.ISO_LOCAL_DATE).appendPattern("['T'][' ']").append(DateTimeFormatter.ISO_LOCAL_TIME)
        .appendPattern("[XXX][XX][X]").toFormatter().withResolverStyle(ResolverStyle.STRICT);
    private static final DateTimeFormatter TIME = new DateTimeFormatterBuilder().parseCaseInsensitive()
        .append(DateTimeFormatter.ISO_LOCAL_TIME).appendPattern("[XXX][XX][X]").toFormatter()
        .withResolverStyle(ResolverStyle.STRICT);

    private final DataOutputStream out;
    private Connection connection;
    private boolean hasTransactions = true;
    private boolean writes;
    private String driver = "";
    private String product = "";

    private JdbcRows(DataOutputStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        FileOutputStream raw = new FileOutputStream(FileDescriptor.out);
        final JdbcRows program = new JdbcRows(new DataOutputStream(new BufferedOutputStream(raw, 1 << 16)));
        PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
        System.setOut(nowhere); // some drivers print
        System.setErr(nowhere);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        final LinkedBlockingQueue requests = new LinkedBlockingQueue();
        Thread worker = new Thread(new Runnable() {
            public void run() {
                program.answerForever(requests);
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
                } catch (SQLException failed) {
                    SQLException error = reason(failed);
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
            open(request[1], request[2], request[3], request[4].equals("write"));
        } else if (operation.equals("table")) {
            table(request[1]);
        } else if (operation.equals("columns")) {
            columns(request[1]);
        } else if (operation.equals("count")) {
            count(request);
        } else if (operation.equals("write")) {
            write(request);
        } else if (operation.equals("commit")) {
            connection.commit();
        } else if (operation.equals("rollback")) {
            connection.rollback();
        } else {
            rows(request);
        }
    }

    private void open(String url, String user, String password, boolean writes) throws SQLException, IOException {
        Properties properties = new Properties();
        if (!user.isEmpty()) {
            properties.setProperty("user", user);
            properties.setProperty("password", password);
        }
        connection = DriverManager.getConnection(url, properties);
        this.writes = writes;
        DatabaseMetaData data = connection.getMetaData();
        try {
            if (!writes) {
                connection.setReadOnly(true);
            }
            connection.setAutoCommit(false); // some drivers read everything at once otherwise
            hasTransactions = !writes || data.supportsTransactions();
        } catch (SQLException unsupported) { // by databases without transactions
            hasTransactions = false;
        }
        String quote = data.getIdentifierQuoteString();
        driver = data.getDriverName();
        product = data.getDatabaseProductName();
        send('R', new String[] {
            product, data.getDatabaseProductVersion(), driver, quote == null ? "" : quote.trim(),
            hasTransactions ? "transactions" : ""
        });
    }

    /**
     * The table's schema and name as the database writes them, and the columns of its primary key. If the connection
     * writes, the columns that can be written and the unique indexes follow.
     */
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
        if (writes) {
            sendWritable(data, described);
            sendUnique(data, described);
        }
        endTransaction();
    }

    /** Of each column that can be written: its name, its type, the number of the type, and whether it is optional. */
    private void sendWritable(DatabaseMetaData data, String[] table) throws SQLException, IOException {
        String schema = table[1] == null ? null : pattern(data, table[1]);
        ResultSet columns = data.getColumns(table[0], schema, pattern(data, table[2]), null);
        while (columns.next()) { // in the order of the specification, which is the only one that Oracle's driver takes
            String own = columns.getString("TABLE_SCHEM");
            String name = columns.getString("COLUMN_NAME");
            int code = columns.getInt("DATA_TYPE");
            String type = columns.getString("TYPE_NAME");
            int size = columns.getInt("COLUMN_SIZE");
            boolean isOptional = columns.getInt("NULLABLE") != DatabaseMetaData.columnNoNulls;
            isOptional |= columns.getString("COLUMN_DEF") != null;
            isOptional |= saysYes(columns, "IS_AUTOINCREMENT");
            boolean isGenerated = saysYes(columns, "IS_GENERATEDCOLUMN");
            isGenerated |= code == Types.BINARY && type.equalsIgnoreCase("timestamp"); // a version of SQL Server
            if (!isGenerated && (table[1] == null || table[1].equals(own))) {
                boolean isLimited = isText(code) && size > 0 && size < LONGEST_LIMIT && type.indexOf('(') < 0;
                send('R', new String[] {
                    "column", name, isLimited ? type + "(" + size + ")" : type, String.valueOf(code),
                    isOptional ? "optional" : ""
                });
            }
        }
        columns.close();
    }

    private static boolean saysYes(ResultSet rows, String column) {
        try {
            return "YES".equals(rows.getString(column));
        } catch (SQLException unknown) { // to an older driver
            return false;
        }
    }

    private static boolean isText(int code) {
        return code == Types.CHAR || code == Types.VARCHAR || code == Types.NCHAR || code == Types.NVARCHAR;
    }

    /** The columns of each unique index on all rows. */
    private void sendUnique(DatabaseMetaData data, String[] table) throws SQLException, IOException {
        Map columns = new LinkedHashMap();
        Set partial = new HashSet();
        ResultSet indexes = data.getIndexInfo(table[0], table[1], table[2], true, true);
        while (indexes.next()) {
            String name = indexes.getString("INDEX_NAME");
            String column = indexes.getString("COLUMN_NAME");
            if (name == null || indexes.getShort("TYPE") == DatabaseMetaData.tableIndexStatistic) {
                continue;
            }
            if (column == null || indexes.getString("FILTER_CONDITION") != null) {
                partial.add(name);
            }
            if (!columns.containsKey(name)) {
                columns.put(name, new ArrayList());
            }
            ((List) columns.get(name)).add(column);
        }
        indexes.close();
        Object[] names = columns.keySet().toArray();
        for (int i = 0; i < names.length; i++) {
            if (!partial.contains(names[i])) {
                List answer = new ArrayList();
                answer.add("unique");
                answer.addAll((List) columns.get(names[i]));
                send('R', (String[]) answer.toArray(new String[0]));
            }
        }
    }

    private static String pattern(DatabaseMetaData data, String name) throws SQLException {
        String escape = data.getSearchStringEscape();
        return name.replace("_", escape + "_").replace("%", escape + "%");
    }

    private String[] described(DatabaseMetaData data, String schema, String table) throws SQLException {
        String own = schema == null ? connection.getSchema() : schema;
        String owner = own == null ? null : pattern(data, own);
        ResultSet tables = data.getTables(connection.getCatalog(), owner, pattern(data, table), null);
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

    /**
     * Writes rows in the transaction that is open, until it is committed: by a statement each and, those for which it
     * finds no row, by a second one. Either may be empty. Then come the number of columns, for each its name, type and
     * the number of the type, and the values of each row, which are the parameters of both statements.
     */
    private void write(String[] request) throws SQLException, IOException {
        String first = request[1];
        String second = request[2];
        Target[] columns = new Target[Integer.parseInt(request[3])];
        int at = 4;
        for (int i = 0; i < columns.length; i++) {
            columns[i] = new Target(request[at], request[at + 1], Integer.parseInt(request[at + 2]));
            at += 3;
        }
        boolean[] done = new boolean[(request.length - at) / columns.length];
        if (first.startsWith("SELECT")) {
            find(first, columns, request, at, done);
        } else if (!first.isEmpty()) {
            execute(first, columns, request, at, done);
        }
        if (!second.isEmpty()) {
            execute(second, columns, request, at, done);
        }
    }

    /** By a statement that counts. */
    private void find(String statement, Target[] columns, String[] values, int first, boolean[] found)
        throws SQLException {
        PreparedStatement prepared = connection.prepareStatement(statement);
        try {
            for (int row = 0; row < found.length; row++) {
                bind(prepared, columns, values, first + row * columns.length);
                ResultSet rows = prepared.executeQuery();
                rows.next();
                found[row] = rows.getLong(1) > 0;
                rows.close();
            }
        } finally {
            prepared.close();
        }
    }

    /** For the rows that are not done yet; afterwards those are that the statement has changed. */
    private void execute(String statement, Target[] columns, String[] values, int first, boolean[] done)
        throws SQLException {
        PreparedStatement prepared = connection.prepareStatement(statement);
        try {
            int[] rows = new int[done.length];
            int size = 0;
            for (int row = 0; row < done.length; row++) {
                if (!done[row]) {
                    bind(prepared, columns, values, first + row * columns.length);
                    prepared.addBatch();
                    rows[size++] = row;
                }
            }
            int[] counts = size == 0 ? new int[0] : prepared.executeBatch();
            for (int i = 0; i < size; i++) {
                done[rows[i]] = counts[i] > 0;
            }
            if (statement.startsWith("UPDATE")) {
                for (int i = 0; i < size; i++) {
                    if (counts[i] == Statement.SUCCESS_NO_INFO) { // the driver does not say, of a whole batch
                        bind(prepared, columns, values, first + rows[i] * columns.length);
                        done[rows[i]] = prepared.executeUpdate() > 0;
                    }
                }
            }
        } finally {
            prepared.close();
        }
    }

    private static void bind(PreparedStatement prepared, Target[] columns, String[] values, int first)
        throws SQLException {
        for (int i = 0; i < columns.length; i++) {
            columns[i].bind(prepared, i + 1, values[first + i]);
        }
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

    /** A column that is written: it takes values of JSON, each with a letter for its kind, as its type needs them. */
    private class Target {
        private final String name;
        private final String type;
        private final String lower;
        private final int code;
        private final boolean isPostgresql;

        Target(String name, String type, int code) {
            this.name = name;
            this.type = type;
            this.lower = type.toLowerCase();
            this.code = code;
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
                bindJson(prepared, number, kind == 's' ? quote(text) : text);
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
            return "Column " + name + " takes " + type + ": " + (kind == 's' ? quote(shown) : shown) + " " + why;
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

    /** Of a batch, some drivers say which statement has failed, with its values, and only then why. */
    private static SQLException reason(SQLException error) {
        SQLException next = error instanceof BatchUpdateException ? error.getNextException() : null;
        return next == null ? error : next;
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
            return; // whoever uses the connection next is told; a writer rolls back again
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
