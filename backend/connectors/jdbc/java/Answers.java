import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;

/** What goes to standard output: answers that are a letter, the number of bytes that follow, and texts. */
class Answers {
    private final DataOutputStream out;

    Answers(OutputStream out) {
        this.out = new DataOutputStream(new BufferedOutputStream(out, 1 << 16));
    }

    void send(char kind, String[] texts) throws IOException {
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

    void flush() throws IOException {
        out.flush();
    }
}
