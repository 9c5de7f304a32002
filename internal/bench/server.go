package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/operator"
)

// localServer is a real server on loopback, with a client of its operator.
type localServer struct {
	*httpapi.Client
	dir      string
	operator string
	parts    sync.WaitGroup // goroutines that run with the server and end with it
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// withServer runs a server in its own directory while f measures.
func withServer(ctx context.Context, f func(ctx context.Context, s *localServer) error) error {
	dir, err := os.MkdirTemp("", "tutti-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(ctx)
	s := &localServer{dir: dir, operator: filepath.Join(dir, "operator")}
	defer s.parts.Wait()
	defer cancel()
	data := filepath.Join(dir, "server")
	err = app.InitServer(app.InitOptions{
		Dir: data, Host: "127.0.0.1", Listen: "127.0.0.1:18150", Bus: "127.0.0.1:18151", Operator: "bench", OperatorDir: s.operator,
	})
	if err != nil {
		return err
	}
	server, err := app.NewServer(app.ServerOptions{Dir: data, Socket: "-", Logger: quiet()})
	if err != nil {
		return err
	}
	s.parts.Go(func() { _ = server.Run(ctx) })
	if s.Client, err = operator.Connect(operator.ConnectOptions{OperatorDir: s.operator}); err != nil {
		return err
	}
	return f(ctx, s)
}
