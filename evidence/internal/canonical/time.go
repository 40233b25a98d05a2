package canonical

import "time"

// FixedTime parses a time in events.TimeLayout from 1970 on. It may reject other valid times.
func FixedTime(b []byte) (seconds, nanos int64, ok bool) {
	const shape = "dddd-dd-ddTdd:dd:dd.dddddddddZ"
	if len(b) != len(shape) {
		return 0, 0, false
	}
	for i := range b {
		if digit := b[i] >= '0' && b[i] <= '9'; shape[i] == 'd' && !digit || shape[i] != 'd' && b[i] != shape[i] {
			return 0, 0, false
		}
	}
	number := func(part []byte) (n int) {
		for _, c := range part {
			n = n*10 + int(c-'0')
		}
		return n
	}
	year, month, day := number(b[:4]), number(b[5:7]), number(b[8:10])
	hour, minute, second := number(b[11:13]), number(b[14:16]), number(b[17:19])
	if year < 1970 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return 0, 0, false
	}
	days := int64(daysBefore(year, month) + day - 1)
	return ((days*24+int64(hour))*60+int64(minute))*60 + int64(second), int64(number(b[20:29])), true
}

var monthDays = [13]int{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func leapYear(y int) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

func daysIn(year, month int) int {
	if month == int(time.February) && leapYear(year) {
		return 29
	}
	return monthDays[month]
}

// daysBefore counts the days from 1970-01-01 to the first of a month.
func daysBefore(year, month int) int {
	y := year - 1
	days := (year-1970)*365 + (y/4 - 1969/4) - (y/100 - 1969/100) + (y/400 - 1969/400)
	for m := 1; m < month; m++ {
		days += daysIn(year, m)
	}
	return days
}
