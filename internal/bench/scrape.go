package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/server"
)

const scrapeRounds = 20

// measureScrape measures the overview of a large fleet, which a server makes at most every five seconds, and a scrape
// that uses an overview.
func measureScrape(ctx context.Context, s *server.Server, nodes int) ([]figure, error) {
	var took []time.Duration
	before, err := cpuOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	for range scrapeRounds {
		began := time.Now()
		if _, err := s.Tally(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	after, err := cpuOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	meters := metrics.New(metrics.Options{})
	meters.Serve(s.Tally)
	var scrapes []time.Duration
	size := 0
	for range scrapeRounds + 1 {
		w, began := httptest.NewRecorder(), time.Now()
		meters.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody))
		scrapes, size = append(scrapes, time.Since(began)), w.Body.Len()
	}
	return []figure{
		{fmt.Sprintf("metrics: an overview of %d nodes, median", nodes), quantile(took, 0.5), "ms", 0},
		{"metrics: an overview, CPU", float64((after - before).Microseconds()) / scrapeRounds / 1000, "ms", 0},
		{"metrics: a scrape with an overview, median", quantile(scrapes[1:], 0.5), "ms", 0},
		{"metrics: a scrape", float64(size) / 1024, "KiB", 0},
	}, nil
}
