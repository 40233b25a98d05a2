package correlation

// SessionIdle is the log time after which a session without open calls is
// forgotten, and is said to have fallen silent where its protocol demands an end.
// It happens with the first input after that time.
const SessionIdle = sessionIdle
