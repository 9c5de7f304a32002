package retain_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/retain"
)

func TestReportsKept(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	var ended []retain.Ended // one run per day, the latest one now
	for day := range 10 {
		ended = append(ended, retain.Ended{At: now.AddDate(0, 0, day-9)})
	}
	for _, tc := range []struct {
		reason string
		keep   retain.Reports
		want   int
	}{
		{"as long as their runs", retain.Reports{}, 10},
		{"the latest", retain.Reports{Most: 3}, 3},
		{"more than there are", retain.Reports{Most: 30}, 10},
		{"not longer than", retain.Reports{For: 48 * time.Hour}, 3},
		{"whichever is less: by age", retain.Reports{Most: 5, For: time.Hour}, 1},
		{"whichever is less: by count", retain.Reports{Most: 2, For: 100 * time.Hour}, 2},
	} {
		got := tc.keep.Keeps(ended, now)
		if len(got) != tc.want || len(got) > 0 && !got[len(got)-1].At.Equal(now) {
			t.Errorf("%s: %d stay, want the latest %d", tc.reason, len(got), tc.want)
		}
	}
	if got := (retain.Reports{For: time.Hour}).Keeps(ended[:3], now); len(got) != 0 {
		t.Errorf("%d stay of those that are too old, all of them", len(got))
	}
}
