import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

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
 * Joins two tables by their keys: every change of either gives the row of its key as it is then, or, where there is one
 * no longer, that it was deleted. A result that is deleted has the record without a value that has deleted it, since
 * its key is in that.
 *
 * Both tables come as one data set, as in TableJoin. Types are raw for the same reason.
 */
public class TablesJoin extends StatefulProcessor {
    private static final int IS_SECOND = 1;
    private static final int VALUE = 3;
    private static final int FIELDS = 8;

    private final StructType record;
    private final boolean keepsFirst;
    private final boolean keepsSecond;
    private transient ValueState first;
    private transient ValueState second;

    public TablesJoin(StructType record, boolean keepsFirst, boolean keepsSecond) {
        this.record = record;
        this.keepsFirst = keepsFirst;
        this.keepsSecond = keepsSecond;
    }

    public void init(OutputMode outputMode, TimeMode timeMode) {
        first = getHandle().getValueState("first", Encoders.row(record), TTLConfig.NONE());
        second = getHandle().getValueState("second", Encoders.row(record), TTLConfig.NONE());
    }

    public scala.collection.Iterator handleInputRows(Object key, scala.collection.Iterator rows, TimerValues timers) {
        List ordered = new ArrayList();
        while (rows.hasNext()) {
            ordered.add(rows.next());
        }
        Collections.sort(ordered, new TableJoin.InOrderOfTime());
        Row left = (Row) first.get();
        Row right = (Row) second.get();
        List results = new ArrayList();
        for (int i = 0; i < ordered.size(); i++) {
            Row row = (Row) ordered.get(i);
            boolean isSecond = row.getBoolean(IS_SECOND);
            boolean was = isThere(left, right);
            Row current = row.isNullAt(VALUE) ? null : row;
            if (current == null && (isSecond ? right : left) == null) {
                continue; // what was not there is deleted
            }
            if (isSecond) {
                right = current;
            } else {
                left = current;
            }
            if (isThere(left, right)) {
                results.add(result(left, right, true));
            } else if (was) {
                results.add(result(left == null && !isSecond ? row : left, right == null && isSecond ? row : right, false));
            }
        }
        keep(first, left);
        keep(second, right);
        return scala.jdk.javaapi.CollectionConverters.asScala(results.iterator());
    }

    private boolean isThere(Row left, Row right) {
        return left != null && right != null || keepsFirst && left != null || keepsSecond && right != null;
    }

    private static void keep(ValueState state, Row row) {
        if (row != null) {
            state.update(row);
        } else if (state.exists()) {
            state.clear();
        }
    }

    private static Row result(Row left, Row right, boolean isThere) {
        Object[] values = new Object[2 * FIELDS + 1];
        for (int i = 0; i < FIELDS; i++) {
            values[i] = left == null ? null : left.get(i);
            values[FIELDS + i] = right == null ? null : right.get(i);
        }
        values[2 * FIELDS] = Boolean.valueOf(isThere);
        return RowFactory.create(values);
    }
}
