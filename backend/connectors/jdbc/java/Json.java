/** Texts of JSON. */
class Json {
    private static final char[] DIGITS = "0123456789abcdef".toCharArray();

    private Json() {
    }

    static String quote(String text) {
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
}
