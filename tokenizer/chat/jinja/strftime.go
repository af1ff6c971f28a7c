package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime is datetime.strftime of a time without a zone, in the C locale, on Linux.
func strftime(now time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		strip := false
		if i < len(format) && format[i] == '-' {
			strip = true
			i++
		}
		if i == len(format) {
			unsupported("a strftime format that ends with %%")
		}
		text := directive(now, format[i])
		if strip {
			if text = strings.TrimLeft(text, "0 "); text == "" {
				text = "0"
			}
		}
		b.WriteString(text)
	}
	return b.String()
}

var layouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
	'p': "PM", 'y': "06", 'e': "_2", 'j': "002", 'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04",
	'c': "Mon Jan _2 15:04:05 2006", 'r': "03:04:05 PM",
}

func directive(now time.Time, c byte) string {
	// Directives for which Go's time has a layout, in the C locale.
	if layout, known := layouts[c]; known {
		return now.Format(layout)
	}
	// The others: literals, the time zone (a naive datetime has none), fractions, weeks, and glibc's k and l.
	day := int(now.Weekday())
	year, week := now.ISOWeek()
	switch c {
	case '%':
		return "%"
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'Z', 'z':
		return ""
	case 'f':
		return fmt.Sprintf("%06d", now.Nanosecond()/1000)
	case 'C':
		return fmt.Sprintf("%02d", now.Year()/100)
	case 'w':
		return strconv.Itoa(day)
	case 'u':
		return strconv.Itoa((day+6)%7 + 1)
	case 'U':
		return fmt.Sprintf("%02d", (now.YearDay()+6-day)/7)
	case 'W':
		return fmt.Sprintf("%02d", (now.YearDay()+6-(day+6)%7)/7)
	case 'G':
		return strconv.Itoa(year)
	case 'V':
		return fmt.Sprintf("%02d", week)
	case 'k':
		return fmt.Sprintf("%2d", now.Hour())
	case 'l':
		return fmt.Sprintf("%2d", (now.Hour()+11)%12+1)
	}
	unsupported("the strftime directive %%%c", c)
	return ""
}
