import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Applies rules of Kerberos as Apache Kafka does: a rule, a tab and a principal in each line; the name out, or "!". */
public class ShortNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", 2);
            try {
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules("REALM.COM", List.of(parts[0]));
                out.append("=" + namer.shortName(KerberosName.parse(parts[1])));
            } catch (Exception error) {
                out.append("!");
            }
            out.append("\n");
        }
        System.out.print(out);
    }
}
