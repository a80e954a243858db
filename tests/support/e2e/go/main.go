// Writes a value to a topic with franz-go, reads it back in a consumer group, and prints it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	bootstrap := flag.String("bootstrap", "", "host:port, separated by commas")
	topic := flag.String("topic", "", "the topic, which is created")
	value := flag.String("value", "", "the value of the record")
	transaction := flag.String("transactional-id", "", "write in a transaction of this id")
	ca := flag.String("ca", "", "file with the certificates to trust; TLS is used if it is set")
	identity := flag.String("identity", "", "file with the client's key and certificate")
	mechanism := flag.String("mechanism", "", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
	user := flag.String("user", "", "")
	password := flag.String("password", "", "the password, or the token")
	flag.Parse()

	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumerGroup("franz-go-" + *topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}
	if *transaction != "" {
		options = append(options, kgo.TransactionalID(*transaction))
	}
	if *ca != "" {
		trusted := x509.NewCertPool()
		pem, err := os.ReadFile(*ca)
		check(err)
		trusted.AppendCertsFromPEM(pem)
		config := &tls.Config{RootCAs: trusted}
		if *identity != "" {
			pair, err := tls.LoadX509KeyPair(*identity, *identity)
			check(err)
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	switch *mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: *user, Pass: *password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: *password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: *user, Pass: *password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: *password}.AsMechanism()))
	default:
		check(fmt.Errorf("no mechanism %s", *mechanism))
	}

	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	wait, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	record := &kgo.Record{Topic: *topic, Value: []byte(*value)}
	if *transaction != "" {
		check(client.BeginTransaction())
	}
	check(client.ProduceSync(wait, record).FirstErr())
	if *transaction != "" {
		check(client.EndTransaction(wait, kgo.TryCommit))
	}
	for {
		fetches := client.PollFetches(wait)
		for _, one := range fetches.Errors() {
			check(one.Err)
		}
		for _, one := range fetches.Records() {
			fmt.Println(string(one.Value))
			return
		}
	}
}
