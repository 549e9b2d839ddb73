import java.io.IOException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** The tables of a database, as its driver describes them. */
class Tables {
    private static final int LONGEST_LIMIT = 1000000; // of texts; larger ones are none

    private final Connection connection;
    private final boolean writes;
    private final Answers answers;

    Tables(Connection connection, boolean writes, Answers answers) {
        this.connection = connection;
        this.writes = writes;
        this.answers = answers;
    }

    /**
     * The table's schema and name as the database writes them, and the columns of its primary key. If the connection
     * writes, the columns that can be written and the unique indexes follow.
     */
    void describe(String name) throws SQLException, IOException {
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
        answers.send('R', (String[]) answer.toArray(new String[0]));
        if (writes) {
            sendWritable(data, described);
            sendUnique(data, described);
        }
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
                answers.send('R', new String[] {
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
                answers.send('R', (String[]) answer.toArray(new String[0]));
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
}
