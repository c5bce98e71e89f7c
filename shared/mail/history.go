package mail

import (
	"fmt"
	"math"
	"strconv"
)

// A HistoryID is Gmail's counter of a mailbox's changes: it grows with every change, has gaps, and
// is compared as a number ("99" comes before "100"). Zero means none: Gmail never gives it out.
type HistoryID uint64

// MaxHistoryID is the greatest id that can be kept: Firestore's integers are signed 64-bit.
const MaxHistoryID HistoryID = math.MaxInt64

// ParseHistoryID reads the decimal form in which Gmail and events carry an id, exact to the last
// digit of a uint64. It refuses signs, spaces, fractions and zero.
func ParseHistoryID(s string) (HistoryID, error) {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("historyId %.40q is not a positive decimal number of 64 bits", s)
	}
	return HistoryID(id), nil
}

// String returns the decimal form.
func (h HistoryID) String() string { return strconv.FormatUint(uint64(h), 10) }
