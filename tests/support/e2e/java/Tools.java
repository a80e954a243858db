import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM, since starting one is what takes the time.
 * In: a line a run, the class and its arguments with tabs between. Out: the number of bytes of what the tool printed and
 * its exit code, a line feed, and those bytes.
 */
public class Tools {
    private static class Ended extends Error { }

    /** The exit code that counts: a tool may catch its own end, and exit again. */
    private static Integer first;

    private static void end(int code) {
        first = first == null ? code : first;
        throw new Ended();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream told = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(told, true, "UTF-8");
            System.setOut(capture);
            System.setErr(capture);
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length), capture);
            capture.flush();
            out.println(told.size() + " " + code);
            told.writeTo(out);
            out.flush();
        }
    }

    private static int run(String name, String[] arguments, PrintStream out) throws Exception {
        first = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (first != null) {
                return first;
            }
            thrown.getCause().printStackTrace(out);
            return 99;
        }
    }
}
