package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

const pw = "Sommer-Regen42!"

// Credentials that a program's flags, a tag, or a word of another language give away.
func TestCommandsAndWords(t *testing.T) {
	for _, text := range []string{
		"mysql -u root -p%s -h db", "/usr/bin/mysqldump -h db -p%s shop", "mysqladmin -uroot '-p%s' status", "MYSQL: mysql -p%s",
		"curl -u bob:%s https://x.invalid", "curl -sS -X POST -u 'bob:%s' https://x", "curl --user bob:%s u", "curl -ubob:%s u", "curl --proxy-user p:%s u",
		"wget --user=bob --password=%s u", "wget --http-password=%s u", "sshpass -p %s ssh host", "sshpass -p'%s' ssh host", "PGPASSWORD=%s psql -h db", "redis-cli -h cache -a %s ping", "redis-cli --pass %s ping",
		"docker login -u bob -p %s registry.invalid", "helm registry login -u bob -p %s r", "net user bob %s /add", "mongosh --host db -u bob -p %s", "ldapsearch -x -D cn=admin -w %s",
		"smbclient -U bob%%%s //srv/share", "unzip -P %s a.zip", "7z x -p%s a.7z", "sqlcmd -S db -U sa -P %s", "plink -ssh bob@h -pw %s", "openssl enc -aes-256-cbc -pass pass:%s",
		"ALTER USER bob WITH PASSWORD '%s';", "create user bob identified by '%s'", "CREATE USER bob IDENTIFIED BY \"%s\" ACCOUNT UNLOCK", "CREATE USER bob IDENTIFIED WITH caching_sha2_password BY '%s'", "ALTER ROLE bob PASSWORD 'it''s %s'",
		"$p = ConvertTo-SecureString '%s' -AsPlainText", "DSN=bob:%s@tcp(db:3306)/shop", "ssh-keygen -t ed25519 -N '%s' -f k", "twine upload -u bob -p %s dist/*", "kubectl create secret generic x --from-literal=foo=%s",
		"machine api.invalid login bob password %s", "machine api.invalid\n  login bob\n  password %s\n", "requirepass %s", "CONFIG SET requirepass %s", "redis-server --requirepass %s", "REDISCLI_AUTH=%s", "masterauth %s", "ansible_become_pass=%s",
		"aws configure set aws_secret_access_key %s", `{"Name":"db","SecretString":"%s"}`, "aws secretsmanager create-secret --secret-string %s", "psk=\"%s\"", "http -a bob:%s https://x", "cypher-shell -u bob -p %s", "htpasswd -bc .htpasswd bob %s",
		`requirepass "%s"`, "requirepass '%s'", `{"line":"masterauth \"%s\""}`, "requirepass\t%s", "CONFIG SET REQUIREPASS %s", `requirepass "a1 %s"`, `machine h login bob password "%s"`, "machine h login bob\tpassword\t%s", "machine h password %s login bob", "login password password %s",
		`aws configure set aws_secret_access_key "%s"`, "htpasswd -nb bob %s", "aws configure set aws_secret_access_key /Kw7z/%s", "machine h login bob password $%s", "machine h login bob password /%s", "requirepass $Kw7z%s", "masterauth a.b/%s", "htpasswd -nbB bob %s", "htpasswd -n -b bob '%s'",
		"htpasswd -bc /etc/nginx/.htpasswd bob %s", "htpasswd -b -c \"/etc/nginx/.htpasswd\" bob %s", "net user /domain bob %s", "net user bob %s /add /y",
		`printf 'machine h\nlogin bob\npassword %s\n' > ~/.netrc`, `echo -e "machine h\r\n\tlogin bob\r\n\tpassword %s"`, `{\"content\":\"machine h\\nlogin bob\\npassword %s\\n\"}`, `printf 'port 1\nrequirepass a1\nmasterauth %s\n' >> redis.conf`,
		`printf 'cd x\nmysql -u root -p%s\n' > x.sh`, `x\nredis-cli -a %s`, `x\nhtpasswd -nb bob %s`, `x\n--password %s`, `x\nREDISCLI_AUTH=%s`, `x\nhasło: %s`, `x\nAuthorization: NTLM %s`, `x\nALTER ROLE bob PASSWORD '%s'`, `x\tpsk="%s"`, `x\nuser_pass: %s`,
		"machine h login bob password corp\\tom-%s", "machine h login bob password corp\\new99%s", "requirepass my\\nAbc123%s", `requirepass corp\robert!%s`,
		"CONFIG SET requirepass $%s", "redis-cli CONFIG SET requirepass '$%s'", "redis-cli config set requirepass .%s", "redis-server --requirepass -%s", `requirepass "~%s"`, "requirepass %s.conf", "x\n  masterauth .%s", `x\n  masterauth .%s`,
		"aws configure set aws_secret_access_key /%s", "requirepass $correct%s", "requirepass (%s)", "redis.conf:requirepass -%s", "redis.conf: requirepass -%s", " 12\trequirepass ~%s", "+requirepass ~%s", "# requirepass *%s", "- masterauth /%s",
		"echo requirepass ~%s >> redis.conf", `echo "requirepass ~%s"`,
		"ALTER ROLE bob PASSWORD E'%s'", "CREATE LOGIN bob WITH PASSWORD = N'%s'", "ConvertTo-SecureString -AsPlainText \"%s\" -Force", "storePassword '%s'", "keyPassword \"%s\"", "ASP.NET_SessionId=%s", "Authorization: NTLM %s", "Authorization: Bot %s",
		"cmdkey /add:srv /user:bob /pass:%s", "https://bob:%s@host/x",
		"<password>%s</password>", "<db:password>%s</db:password>", "<Password type=\"text\">\n  %s\n</Password>", "<user>bob</user><apiKey>%s</apiKey>", "<dbPassword><![CDATA[%s]]></dbPassword>",
		`<add key="DbPassword" value="%s"/>`, "- name: DB_PASSWORD\n  value: %s\n", `[{"Name":"DB_PASSWORD","Value":"%s"}]`, `[{\"name\":\"DB_PASSWORD\",\"value\":\"%s\"}]`, "ParameterKey=DBPassword,ParameterValue=%s",
		"X-Db-Pass: %s", "user_pass=%s", "smtp_pass: %s", "dbPass = \"%s\"", "user=bob pass=%s",
		"пароль: %s", "Пароль=%s", "ПАРОЛЬ: %s", "密码: %s", "密码：%s", "パスワード：%s", "パスワード＝%s", "비밀번호: %s", "كلمة المرور: %s", "סיסמה: %s", "contraseña: %s", "CONTRASEÑA: %s", "mot de passe : %s", "Mot de passe: %s",
		"Passwort: %s", "Kennwort=%s", "senha: %s", "hasło: %s", "şifre: %s", "ŞİFRE: %s", "lösenord: %s", "jelszó: %s", "wachtwoord: %s", "mật khẩu: %s", "รหัสผ่าน: %s", "пароль от базы: x, пароль: %s",
	} {
		s := strings.ReplaceAll(strings.Replace(text, "%s", pw, 1), "%%", "%")
		if out, _ := maskText(s); strings.Contains(out, pw) {
			t.Errorf("stays: %q", out)
		} else if strings.Contains(s, "bob") && !strings.Contains(out, "bob") {
			t.Errorf("too much is gone: %q", out)
		}
	}
}

// What looks like it and is none.
func TestNoCommandsNorWords(t *testing.T) {
	for _, text := range []string{
		"mysql -u root -p -h db", "mysql -P 3306 -h db", "we moved from mysql to postgres - please check", "curl -u bob https://x.invalid/a:b", "curl -s https://x.invalid:8443/a", "the net user experience improved a lot",
		"redis-cli -h cache ping", "docker run -p 8080:80 web", "docker login registry.invalid", "mongo dump -p", "ssh -p 2222 host", "mkdir -p /a/b", "unzip a.zip -d out", "zip -r a.zip dir",
		"<password></password>", "<password/>", "<passwordPolicy>strict</passwordPolicy>", "<td>token</td><td>x</td>", `<add key="Theme" value="dark"/>`, "- name: LOG_LEVEL\n  value: debug\n", `[{"Name":"REGION","Value":"eu-1"}]`,
		"ALTER USER bob WITH PASSWORD NULL", "IDENTIFIED BY ''", "password '", "identified by a number", "wait @tcp(db:3306)", "bob@tcp(db:3306)/shop", "ssh-keygen -t ed25519 -f k -N ''", "kubectl create configmap x --from-file=foo=a.txt",
		"first_pass: 12", "bypass=true", "boarding_pass: A12", "tests pass: 12 of 14", "compass: north", "user tests pass: 12",
		"after login the password is asked for again.", "login with password authentication", "login name password", "machine login bob password", "the password is new", "phrase: the user has seen this page once", "requirepass is not set.", "http -a bob x", "htpasswd -c .htpasswd bob", "htpasswd -n bob42", "htpasswd --nb a bob42", `requirepass "foobar"`, `aws_secret_access_key "is missing"`, "REQUIREPASS is set", "the machine has a password file-1", "machine login password bob", "htpasswd is a program of Apache", "htpasswd -c /etc/nginx/.htpasswd bob42", "htpasswd -D /etc/nginx/.htpasswd bob", "net user bob /active:no /y",
		"aws configure get aws_secret_access_key --profile prod", "grep requirepass /etc/redis/redis.conf", "grep -q aws_secret_access_key ~/.aws/credentials", "redis-cli CONFIG GET requirepass | tail -1", "redis-cli CONFIG GET requirepass || true",
		"CONFIG GET requirepass 2>/dev/null", "requirepass $REDIS_PASSWORD", `requirepass "$REDIS_PASSWORD"`, "requirepass $(cat /run/secrets/redis)", "grep requirepass ./redis.conf", "grep masterauth redis.conf", "grep requirepass *.conf", "grep -r masterauth ../conf.d", "requirepass (optional)",
		"grep requirepass \"/etc/redis/redis.conf\"", "grep requirepass conf/redis-2.conf | wc", "grep aws_secret_access_key .env", "grep -c masterauth redis.conf\n",
		"grep -A 2 requirepass /etc/redis.conf", "grep -A2 requirepass /etc/redis.conf", "grep -qF -- requirepass /etc/redis.conf", "git log -S requirepass -- redis.conf", "CONFIG SET requirepass $REDIS_PASSWORD", "$(redis-cli config set requirepass $REDIS_2)",
		"CONFIG SET requirepass \"$(cat /run/secrets/redis)\"", "aws configure set aws_secret_access_key $1", "| requirepass | string |", `x\nrequirepass foobar\ntls-port 1`, "requirepass foobar\\n# port 1", `requirepass \n`,
		"rewrite ^(.*)(.*)(.*)$ https://example.com$1$2$3/index/of/some/long/path/thing", "$1$2$3/assets/img/logo/company-large.png", "return 301 https://$host$1$2$3/some/page/of/the/web/site", "$1$2$workspaceDirectoryOfTheBuildXX",
		"$1$2$3/assets/img/logos/xyzw", "var a=1,p=$scope$rootScopeProviderFactoryService", "function(e,p=$this$AndAVeryLongVariableNameHere){",
		"enter password \"again-1\"", "masterauth \\\"it\\\"", "masterauth\tis set", "masterauth-file1 is read", `x\nrequirepass foobar\nport 1`, `x\nthe password is\nnew-1`, `login bob\npassword\nrenewal-1`, `a\nmysql is here\n`, `C:\net user bob`, "awk '{print $5$6$7}' a", "s/(a)(b)/$1$2/", "echo $1$2 $1$workspaceDirectoryOfTheBuild", "price,p=1$ and t=3,p=4$5", "x,p=workspaceDirectoryOfTheBuild", "$1$2$3$4$5$6$7$8$9$10$11$12$13$14", "echo $5$6$7$8$9$10$11$12$13$14$15$16$17$18$19", "wpa_key_mgmt=WPA-PSK", "psk: optional", "SecretString is empty", "aws_secret_access_key is missing", "Authorization: required",
		"пароль изменён", "забыли пароль?", "パスワードを忘れた", "忘记密码", "请输入密码：这是一个秘密的句子", "le mot de passe a changé", "das Passwort: siehe oben", "parole: 2027-01-01", "senhal: x", "chiffre: 12", "value=12", "the value: 12.50",
	} {
		if out, spans := maskText(text); out != text {
			t.Errorf("%q became %q (%v)", text, out, spans)
		}
	}
}

// Members that say what another one holds, in any spelling, lists of arguments, and
// keys in other languages. The checker leaves all of it to Document.
func TestPairsAndArguments(t *testing.T) {
	for _, doc := range []string{
		`{"Name":"DB_PASSWORD","Value":"%s"}`, `{"NAME":"DB_PASSWORD","VALUE":"%s"}`, `{"key":"db.password","value":{"stringValue":"%s"}}`, `{"ParameterKey":"DbPassword","ParameterValue":"%s"}`,
		`{"env":[{"name":"A","value":"b"},{"name":"API_KEY","value":"%s"}]}`, `{"variable":"PGPASSWORD","val":"%s"}`, `{"optionName":"password","optionValue":"%s","x":1,"y":2,"z":3}`, `{"header":"X-Db-Pass","value":["%s"]}`,
		`["DB_PASSWORD","%s"]`, `["mysql","-u","root","-p%s"]`, `["/usr/bin/curl","-u","bob:%s","https://x"]`, `["docker","login","-p","%s"]`, `["sshpass","-p","%s","ssh","h"]`, `["htpasswd","-nb","bob","%s"]`, `["htpasswd","-bc","/etc/nginx/.htpasswd","bob","%s"]`, `["redis-cli.exe","-a","%s"]`,
		`{"пароль":"%s"}`, `{"密码":"%s"}`, `{"contraseña":"%s"}`, `{"Contraseña":"%s"}`, `{"mot de passe":"%s"}`, `{"mot_de_passe":"%s"}`, `{"motDePasse":"%s"}`, `{"HASŁO":"%s"}`, `{"كلمة المرور":"%s"}`, `{"user_pass":"%s"}`, `{"X-Db-Pass":"%s"}`,
		`{"user":"bob","pass":"%s"}`, `{"login":"bob","pw":"%s"}`, `{"senha":"%s"}`, `{"passwort":"%s"}`,
	} {
		raw := strings.Replace(doc, "%s", pw, 1)
		var c CleanChecker
		if unclean, ok := c.CheckDocument(parsed(t, []byte(raw)), "", len(raw)); ok && unclean.Len() == 0 {
			t.Errorf("%s is accepted as clean", raw)
		}
		var tree any
		if err := json.Unmarshal([]byte(raw), &tree); err != nil {
			t.Fatal(err)
		}
		tree, _, err := Document(tree, "", nil, Config{})
		out, _ := json.Marshal(tree)
		if err != nil || strings.Contains(string(out), pw) {
			t.Errorf("%s became %s (%v)", raw, out, err)
		}
	}
	for _, raw := range []string{
		`{"Name":"REGION","Value":"eu"}`, `["mysql","-u","root","-p"]`, `["curl","-s","https://x"]`, `{"pass":12,"fail":2}`, `{"pass":"the tests","fail":"none"}`, `["reset_password","login"]`, `{"key":"value"}`, `{"парольная политика":"strict"}`,
	} {
		var tree any
		if err := json.Unmarshal([]byte(raw), &tree); err != nil {
			t.Fatal(err)
		}
		if _, hits, err := Document(tree, "", nil, Config{}); err != nil || len(hits) > 0 {
			t.Errorf("%s: %v %v", raw, hits, err)
		}
	}
}

func TestLongestWord(t *testing.T) {
	longest := 0
	for _, w := range foreignWords {
		longest = max(longest, len(w), len(strings.ToUpper(w)))
	}
	if longest > longestWord {
		t.Errorf("the longest word has %d bytes, longestWord is %d", longest, longestWord)
	}
}
