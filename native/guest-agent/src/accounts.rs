//! Who `user: "name:group"` is, from the text of `/etc/passwd` and `/etc/group`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::failure::Failure;

#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
    pub name: String,
}

fn fields(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(':').collect())
}

fn find_group(group: &str, groups: &str) -> Option<u32> {
    fields(groups).find(|f| f.first() == Some(&group)).and_then(|f| f.get(2)?.parse().ok())
}

/// `spec` is empty (root), `uid`, `uid:gid`, `name` or `name:group`. A number need not be in the files.
pub fn resolve(spec: &str, passwd: &str, group: &str) -> Result<Account, Failure> {
    let fail = |what: &str, name: &str| Failure::new("EXEC_START_FAILED", format!("Cannot run as {spec}: there is no {what} {name} in the guest"));
    let (user, wanted_group) = match spec.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|g| !g.is_empty())),
        None => (spec, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let number = user.parse::<u32>().ok();
    let row = fields(passwd).find(|f| f.first() == Some(&user) || (number.is_some() && f.get(2).and_then(|u| u.parse().ok()) == number));
    let uid = match (&row, number) {
        (Some(row), _) => row.get(2).and_then(|u| u.parse().ok()).ok_or_else(|| fail("user", user))?,
        (None, Some(number)) => number,
        (None, None) => return Err(fail("user", user)),
    };
    let name = row.as_ref().and_then(|r| r.first()).map_or_else(|| user.to_string(), |n| n.to_string());
    let home = row.as_ref().and_then(|r| r.get(5)).filter(|h| !h.is_empty()).map_or_else(|| "/".to_string(), |h| h.to_string());
    let gid = match wanted_group {
        Some(wanted) => find_group(wanted, group).or_else(|| wanted.parse().ok()).ok_or_else(|| fail("group", wanted))?,
        None => row.as_ref().and_then(|r| r.get(3)?.parse().ok()).unwrap_or(0),
    };
    // As Docker does: supplementary groups only when no group was named.
    let mut groups = alloc::vec![gid];
    if wanted_group.is_none() {
        for f in fields(group) {
            let member = f.get(3).is_some_and(|members| members.split(',').any(|m| m == name));
            let id = f.get(2).filter(|_| member).and_then(|g| g.parse().ok());
            if let Some(id) = id.filter(|id| !groups.contains(id) && groups.len() < 64) {
                groups.push(id);
            }
        }
    }
    Ok(Account { uid, gid, groups, home, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n#c\napp:x:1000:1001::/home/app:/bin/sh\nbroken\n7:x:9:9::/seven:\n";
    const GROUP: &str = "root:x:0:\napp:x:1001:\nwheel:x:10:app,root\ndocker:x:11:app\n";

    fn who(spec: &str) -> Account {
        resolve(spec, PASSWD, GROUP).expect(spec)
    }

    #[test]
    fn names_numbers_and_groups() {
        assert_eq!(who("app"), Account { uid: 1000, gid: 1001, groups: vec![1001, 10, 11], home: "/home/app".into(), name: "app".into() });
        assert_eq!(who("1000"), who("app"));
        assert_eq!((who("app:wheel").gid, who("app:wheel").groups), (10, vec![10]));
        assert_eq!((who("1234:4321").uid, who("1234:4321").gid, who("1234").home), (1234, 4321, "/".into()));
        assert_eq!((who("").uid, who("").home), (0, "/root".into()));
        assert_eq!(who(":wheel").gid, 10);
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        assert_eq!(resolve("nobody", PASSWD, GROUP).unwrap_err().code, "EXEC_START_FAILED");
        assert!(resolve("app:nogroup", PASSWD, GROUP).unwrap_err().message.contains("no group nogroup"));
        assert!(resolve("-1", "", "").is_err());
        assert_eq!(resolve("0", "", "").expect("root needs no file").uid, 0);
    }
}
