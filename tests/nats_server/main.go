// A NATS server: takes a configuration file.
package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	options, err := server.ProcessConfigFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	options.NoSigs = true
	running, err := server.NewServer(options)
	if err != nil {
		log.Fatal(err)
	}
	running.ConfigureLogger()
	running.Start()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	running.Shutdown()
}
