import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.math.BigDecimal;
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
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.Properties;
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

    private final Answers answers;
    private Connection connection;
    private boolean hasTransactions = true;
    private boolean writes;
    private String driver = "";
    private String product = "";

    private JdbcRows(Answers answers) {
        this.answers = answers;
    }

    public static void main(String[] arguments) throws Exception {
        FileOutputStream raw = new FileOutputStream(FileDescriptor.out);
        final JdbcRows program = new JdbcRows(new Answers(raw));
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
            answers.send('W', new String[0]);
            answers.flush();
            while (true) {
                String[] request = (String[]) requests.take();
                try {
                    answer(request);
                    answers.send('D', new String[0]);
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
                answers.flush();
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
            new Tables(connection, writes, answers).describe(request[1]);
            endTransaction();
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
        answers.send('R', new String[] {
            product, data.getDatabaseProductVersion(), driver, quote == null ? "" : quote.trim(),
            hasTransactions ? "transactions" : ""
        });
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
            answers.send('R', names);
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
            answers.send('R', new String[] {rows.getString(1)});
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
                answers.send('R', sent);
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
            columns[i] = new Target(request[at], request[at + 1], Integer.parseInt(request[at + 2]), driver, product);
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
        answers.send('E', new String[] {
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
}
