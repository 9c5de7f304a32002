package time

import (
	"sync/atomic"
	"syscall"
)

// TestTruth (truthclock_test.go) adds this file to the standard library's package time for the program on lab hosts. The
// hosts share the kernel's clock, but this file gives each host a clock of its own.

const (
	testClockFile  = "/run/tutti-test-clock"
	testClockAgain = 100 * Millisecond // after this time the file is read again
)

// testClockStep is one setting of the host's clock. The clock is ahead of the kernel's clock by the offset, from the given
// time of the kernel's clock until the next step. Both numbers are in nanoseconds.
type testClockStep struct{ from, offset int64 }

// testClock has the steps of the file. Without a file there are no steps. The runtime calls Now on its own stack, where
// nothing may be read. Therefore a goroutine reads the file.
var testClock atomic.Pointer[[]testClockStep]

func init() {
	readTestClockNow()
	go func() {
		for {
			Sleep(testClockAgain)
			readTestClockNow()
		}
	}()
}

func readTestClockNow() {
	steps := parseTestClock(readTestClock())
	testClock.Store(&steps)
}

func readTestClock() []byte {
	fd, err := syscall.Open(testClockFile, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			return out
		}
		out = append(out, buf[:n]...)
	}
}

// parseTestClock reads lines of the form "FROM OFFSET".
func parseTestClock(text []byte) (steps []testClockStep) {
	var numbers [2]int64
	field, sign := 0, int64(1)
	for _, c := range text {
		switch {
		case c == '-':
			sign = -1
		case c == ' ':
			numbers[0] *= sign
			field, sign = 1, 1
		case c == '\n':
			steps = append(steps, testClockStep{numbers[0], sign * numbers[1]})
			numbers, field, sign = [2]int64{}, 0, 1
		default:
			numbers[field] = 10*numbers[field] + int64(c-'0')
		}
	}
	return steps
}

// testClockOffset returns how far the host's clock was ahead at a time of the kernel's clock.
func testClockOffset(sec int64, nsec int32) int64 {
	at, offset := sec*1_000_000_000+int64(nsec), int64(0)
	if steps := testClock.Load(); steps != nil {
		for _, s := range *steps {
			if s.from > at {
				break
			}
			offset = s.offset
		}
	}
	return offset
}

// onTestClock turns a time of the kernel's clock into a time of the host's clock.
func onTestClock(sec int64, nsec int32) (int64, int32) {
	shifted := int64(nsec) + testClockOffset(sec, nsec)
	sec += shifted / 1_000_000_000
	if shifted %= 1_000_000_000; shifted < 0 {
		sec, shifted = sec-1, shifted+1_000_000_000
	}
	return sec, int32(shifted)
}

// OnTestClock turns a time that the kernel has noted in a file system into a time of the host's clock.
func OnTestClock(t Time) Time {
	return Unix(onTestClock32(t.Unix(), int32(t.Nanosecond())))
}

func onTestClock32(sec int64, nsec int32) (int64, int64) {
	sec, nsec = onTestClock(sec, nsec)
	return sec, int64(nsec)
}
