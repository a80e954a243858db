import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies a topic with Flink's KafkaSink, exactly once, on a mini cluster of this process.
 *
 * Arguments: bootstrap servers, topic to read, topic to write, directory for checkpoints, INCREMENTING or POOLING, and
 * optionally the checkpoint to begin from. The record "fail" makes the job fail once; Flink restarts it from its last
 * checkpoint.
 */
public class FlinkCopy {
    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(300));
        settings.set(CheckpointingOptions.CHECKPOINTING_TIMEOUT, Duration.ofSeconds(30));
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + args[3]);
        settings.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        settings.set(CheckpointingOptions.TOLERABLE_FAILURE_NUMBER, 1000);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, Integer.MAX_VALUE);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(100));
        if (args.length > 5) {
            settings.set(StateRecoveryOptions.SAVEPOINT_PATH, args[5]);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(args[0])
            .setTopics(args[1])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(args[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(args[2])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(args[4]))
            .setProperty("transaction.timeout.ms", "600000")
            // ListTransactions asks every broker, and for so long one that has just been killed.
            .setProperty("request.timeout.ms", "5000")
            .setProperty("default.api.timeout.ms", "5000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(args[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
            .map(new FailOnce(args[3] + "/failed"))
            .uid("fail-once")
            .sinkTo(sink)
            .uid("sink");
        flink.execute();
    }

    /** Passes records on, and fails at the record "fail" the first time that it comes. */
    public static class FailOnce implements MapFunction<String, String> {
        private final String mark;

        FailOnce(String mark) {
            this.mark = mark;
        }

        @Override
        public String map(String value) throws Exception {
            if (value.equals("fail") && !Files.exists(Path.of(mark))) {
                Files.createFile(Path.of(mark));
                throw new IllegalStateException("told to fail");
            }
            return value;
        }
    }
}
