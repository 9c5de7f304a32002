package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// strangersAtOnce is the number of connections that the strangers of one flood have at the same time.
const strangersAtOnce = 64

// strangerTimeout is how long a stranger waits for the server.
const strangerTimeout = 20 * time.Second

// A flood is an action that hostile peers repeat without a pause. The function `begin` starts goroutines of the
// group, and returns when they have begun.
type flood struct {
	name  string // what the figures call the peers
	begin func(ctx context.Context, group *errgroup.Group, dir string) error
}

// floods are measured one after the other.
var floods = []flood{
	{fmt.Sprintf("%d hostile nodes", hostileNodes), floodQuestions},
	{fmt.Sprintf("%d nodes that only beat", hostileNodes), floodBeats},
	{"strangers' TLS on the bus", floodOf(busFile, func(c *tls.Conn) error {
		_, err := c.Read(make([]byte, 1)) // the bus speaks first
		return err
	})},
	{"strangers' TLS on the other port", floodOf(listenFile, func(*tls.Conn) error { return nil })},
	{"strangers who enrol", floodOf(listenFile, func(c *tls.Conn) error {
		body := `{"token":"` + strings.Repeat("x", 1000) + `"}`
		_, err := fmt.Fprintf(c, "POST /v1/enrol HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		return err
	})},
	{"half-open strangers on the bus", floodHalfOpen},
}

// The files in the directory of the bench that contain the server's addresses.
const (
	listenFile = "listen"
	busFile    = "bus"
)

// attackFrom is the process of hostile peers. It sends the messages of a flood until it is killed.
func attackFrom(ctx context.Context, dir, name string) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, hostileNice); err != nil {
		return err
	}
	i := slices.IndexFunc(floods, func(f flood) bool { return f.name == name })
	if i < 0 {
		return fmt.Errorf("unknown flood %q", name)
	}
	group, ctx := errgroup.WithContext(ctx)
	if err := floods[i].begin(ctx, group, dir); err != nil {
		return err
	}
	fmt.Println("begun")
	return group.Wait()
}

// floodQuestions sends costly questions of the hostile nodes, as many at once as the bus allows.
func floodQuestions(ctx context.Context, group *errgroup.Group, dir string) error {
	var terms []string
	for i := range hostileTerms {
		terms = append(terms, fmt.Sprintf(`["=","port",%d]`, i))
	}
	costly := tutti.Query{Kind: tutti.QueryCollect, Type: "Database", Filter: []byte(`["or",` + strings.Join(terms, ",") + `]`)}
	for i := range hostileNodes {
		state := filepath.Join(dir, string(evilName(i)))
		run, err := os.ReadFile(filepath.Join(state, "run"))
		if err != nil {
			return err
		}
		conn, err := connected(ctx, state)
		if err != nil {
			return err
		}
		for range hostileCalls {
			group.Go(func() error {
				for ctx.Err() == nil {
					_ = say(ctx, conn, wire.OpAsk, wire.Question{Run: tutti.RunID(run), Query: costly}) // the question may be refused
				}
				return nil
			})
		}
	}
	return nil
}

// floodBeats sends beats of the hostile nodes as fast as the bus takes them.
func floodBeats(ctx context.Context, group *errgroup.Group, dir string) error {
	beat := []byte(`{"version":"0.4.0","puppet":"8.10.0","trouble":"` + strings.Repeat("x", 200) + `"}`)
	for i := range hostileNodes {
		conn, err := connected(ctx, filepath.Join(dir, string(evilName(i))))
		if err != nil {
			return err
		}
		group.Go(func() error {
			for ctx.Err() == nil {
				if err := conn.Send(wire.OpBeat, beat); err != nil {
					time.Sleep(time.Millisecond) // the bus has closed the connection
				}
			}
			return nil
		})
	}
	return nil
}

// floodOf connects again and again to the address in the file, and finishes TLS. The function `then` is called on
// each connection.
func floodOf(file string, then func(*tls.Conn) error) func(context.Context, *errgroup.Group, string) error {
	return func(ctx context.Context, group *errgroup.Group, dir string) error {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} // a stranger verifies nothing
		return strangers(ctx, group, dir, file, func(c net.Conn) error {
			secure := tls.Client(c, config)
			if err := secure.HandshakeContext(ctx); err != nil {
				return err
			}
			return then(secure)
		})
	}
}

// floodHalfOpen opens connections to the bus and never begins TLS.
func floodHalfOpen(ctx context.Context, group *errgroup.Group, dir string) error {
	return strangers(ctx, group, dir, busFile, func(c net.Conn) error {
		_, err := io.Copy(io.Discard, c) // until the server closes the connection
		return err
	})
}

func strangers(ctx context.Context, group *errgroup.Group, dir, file string, do func(net.Conn) error) error {
	address, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	for range strangersAtOnce {
		group.Go(func() error {
			for ctx.Err() == nil {
				_ = stranger(ctx, string(address), do) // the server may refuse a stranger
			}
			return nil
		})
	}
	return nil
}

func stranger(ctx context.Context, address string, do func(net.Conn) error) error {
	c, err := (&net.Dialer{Timeout: strangerTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	err = c.SetDeadline(time.Now().Add(strangerTimeout))
	if err == nil {
		err = do(c)
	}
	return errors.Join(err, c.Close())
}
