// FerretDB on SQLite: a server that speaks MongoDB's protocol, with users and with TLS.
//
// The module's path begins with FerretDB's own, since what it offers to other modules has no users.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/FerretDB/FerretDB/internal/clientconn"
	"github.com/FerretDB/FerretDB/internal/clientconn/connmetrics"
	"github.com/FerretDB/FerretDB/internal/handler/registry"
	"github.com/FerretDB/FerretDB/internal/util/password"
	"github.com/FerretDB/FerretDB/internal/util/state"
)

func main() {
	listen := flag.String("listen", "", "address to listen on, which is also the replica set's only member")
	listenTLS := flag.String("listen-tls", "", "address to listen on with TLS")
	certificate := flag.String("certificate", "", "server certificate")
	key := flag.String("key", "", "key of the server certificate")
	ca := flag.String("ca", "", "authority of client certificates, which are then needed")
	folder := flag.String("folder", "data", "folder of the databases")
	replicaSet := flag.String("replica-set", "", "name of the replica set; without it, there is none")
	username := flag.String("username", "", "user to make")
	secret := flag.String("password", "", "password of the user")
	flag.Parse()

	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	provider, err := state.NewProvider("")
	check(err)
	check(provider.Update(func(s *state.State) {
		s.DisableTelemetry()
		s.TelemetryLocked = true
	}))
	metrics := connmetrics.NewListenerMetrics()
	handler, closeBackend, err := registry.NewHandler("sqlite", &registry.NewHandlerOpts{
		Logger:        logger,
		ConnMetrics:   metrics.ConnMetrics,
		StateProvider: provider,
		TCPHost:       *listen,
		ReplSetName:   *replicaSet,
		SetupDatabase: "admin",
		SetupUsername: *username,
		SetupPassword: password.WrapPassword(*secret),
		SetupTimeout:  30 * time.Second,
		SQLiteURL:     "file:" + *folder + "/",
		TestOpts: registry.TestOpts{
			CappedCleanupPercentage: 10,
			EnableNewAuth:           true,
			BatchSize:               100,
			MaxBsonObjectSizeBytes:  16 * 1024 * 1024,
		},
	})
	check(err)
	defer closeBackend()
	listener, err := clientconn.Listen(&clientconn.NewListenerOpts{
		TCP:         *listen,
		TLS:         *listenTLS,
		TLSCertFile: *certificate,
		TLSKeyFile:  *key,
		TLSCAFile:   *ca,
		Mode:        clientconn.NormalMode,
		Metrics:     metrics,
		Handler:     handler,
		Logger:      logger,
	})
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener.Run(ctx)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
