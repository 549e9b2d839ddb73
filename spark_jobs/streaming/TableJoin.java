import java.io.Serializable;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;

import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;

/**
 * Adds a table's latest row to each row of a stream with the same key. Only rows of the stream give results; a record
 * without a value deletes the table's row.
 *
 * Both sides come as one data set: the join key, whether it is the table's, and the record. Within a batch they are
 * taken in the order of their times, the table's first. Types are raw, since Spark's own compiler, which compiles this
 * (table_join.py), knows no generics.
 */
public class TableJoin extends StatefulProcessor {
    private static final int KEY = 0;
    private static final int IS_TABLE = 1;
    private static final int VALUE = 3;
    private static final int TIMESTAMP = 4;
    private static final int FIELDS = 8;

    private final StructType record;
    private final boolean keepsUnmatched;
    private transient ValueState latest;

    public TableJoin(StructType record, boolean keepsUnmatched) {
        this.record = record;
        this.keepsUnmatched = keepsUnmatched;
    }

    public void init(OutputMode outputMode, TimeMode timeMode) {
        latest = getHandle().getValueState("latest", Encoders.row(record), TTLConfig.NONE());
    }

    public scala.collection.Iterator handleInputRows(Object key, scala.collection.Iterator rows, TimerValues timers) {
        List ordered = new ArrayList();
        while (rows.hasNext()) {
            ordered.add(rows.next());
        }
        if (ordered.size() > 1) {
            Collections.sort(ordered, new InOrderOfTime());
        }
        Row current = (Row) latest.get();
        boolean changed = false;
        List results = new ArrayList();
        for (int i = 0; i < ordered.size(); i++) {
            Row row = (Row) ordered.get(i);
            if (row.getBoolean(IS_TABLE)) {
                current = row.isNullAt(VALUE) ? null : part(row, null, FIELDS);
                changed = true;
            } else if (current != null || keepsUnmatched) {
                results.add(part(row, current, 2 * FIELDS));
            }
        }
        if (changed && current == null) {
            latest.clear();
        } else if (changed) {
            latest.update(current);
        }
        return scala.jdk.javaapi.CollectionConverters.asScala(results.iterator());
    }

    private static Row part(Row row, Row other, int size) {
        Object[] values = new Object[size];
        for (int i = 0; i < FIELDS; i++) {
            values[i] = row.get(i);
            if (other != null) {
                values[FIELDS + i] = other.get(i);
            }
        }
        return RowFactory.create(values);
    }

    public static class InOrderOfTime implements Comparator, Serializable {
        public int compare(Object one, Object other) {
            Row left = (Row) one;
            Row right = (Row) other;
            int order = ((Timestamp) left.get(TIMESTAMP)).compareTo((Timestamp) right.get(TIMESTAMP));
            if (order != 0) {
                return order;
            }
            return (left.getBoolean(IS_TABLE) ? 0 : 1) - (right.getBoolean(IS_TABLE) ? 0 : 1);
        }
    }

    public static class JoinKey implements MapFunction, Serializable {
        public Object call(Object row) {
            return ((Row) row).getString(KEY);
        }
    }
}
